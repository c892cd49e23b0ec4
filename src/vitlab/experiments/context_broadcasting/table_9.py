"""CB Table 9: UperNet with ViT-S on ADE20K under noise and blur, with and without CB. At `small`: CamVid, ViT-Ti.

The paper's intervals are over five draws of the noise for one trained network; ours are over trained networks.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Results, Scale, paired
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import Check, claims_of, effect, gain, points, table, verdicts_of
from vitlab.experiments.context_broadcasting._dense import ON_CAMVID, upernet

TITLE = "CB Table 9: ADE20K under noise and blur with CB"

DIFFERENCES = ON_CAMVID

_KIND = "segmentation_corruptions"

#: Row -> condition of the stress test, ViT-S, CB.
ROWS = {
    "Shot Noise": ("shot_noise 255", 40.22, 41.09),
    "Gaussian Noise (sigma=5.0)": ("gaussian_noise 5", 42.55, 43.44),
    "Gaussian Noise (sigma=10.0)": ("gaussian_noise 10", 40.22, 41.07),
    "Gaussian Blur (sigma=1.0)": ("gaussian_blur 1", 42.29, 43.26),
    "Gaussian Blur (sigma=2.0)": ("gaussian_blur 2", 40.83, 41.44),
}
_CLEAN = (43.3, 43.9)

PAPER = [
    *table(("ViT-S", "CB"), {"Nothing": _CLEAN, **{row: values[1:] for row, values in ROWS.items()}}),
    *table(
        ("ViT-S interval", "CB interval"),
        {
            "Shot Noise": (0.15, 0.09),
            "Gaussian Noise (sigma=5.0)": (0.08, 0.08),
            "Gaussian Noise (sigma=10.0)": (0.07, 0.06),
        },
    ),
]


def _gap(results: Results, condition: str) -> dict[int, float]:
    """mIoU with CB minus without, by seed; of the clean images for an empty condition."""
    value = points("miou", condition=condition) if condition else points("clean_miou")
    plain, cb = (results.by_seed(arm, _KIND, value) for arm in ("plain", "cb"))
    return {seed: cb[seed] - plain[seed] for seed in plain if seed in cb}


def _checks_of(row: str) -> list[Check]:
    condition, plain, cb = ROWS[row]
    higher = Claim(f"{row}: mIoU", f"CB raises mIoU under {row}", paper=round(cb - plain, 2), source="Table 9")
    wider = Claim(
        f"{row}: gap",
        f"the gain in mIoU with CB is larger under {row} than on clean images",
        paper=round(cb - plain - (_CLEAN[1] - _CLEAN[0]), 2),
        source="Table 9: the gap increases from 0.6 up to 0.97",
        unit="points",
    )
    return [
        gain(higher, "plain", "cb", points("miou", condition=condition), _KIND),
        effect(wider, lambda results: paired(_gap(results, ""), _gap(results, condition))),
    ]


_CHECKS = [
    gain(
        Claim("Nothing: mIoU", "CB raises mIoU on clean images", paper=0.6, source="Table 9"),
        "plain",
        "cb",
        points("clean_miou"),
        _KIND,
    ),
    *(each for row in ROWS for each in _checks_of(row)),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """The stress test of the fine-tuned networks of Table 6, 160K iterations."""
    procedure = f"{_KIND}(runs=1)" if scale == "smoke" else _KIND
    return [
        job
        for arm, part in (("plain", ""), ("cb", "cb"))
        for job in upernet(scale, arm, "small", part, 160, procedure, **({"images": 4} if scale == "smoke" else {}))
    ]


def check(results: Results) -> list[Verdict]:
    """Paired by seed; each number is the mean over five draws of the noise."""
    return verdicts_of(_CHECKS, results)
