"""CB Table 6: UperNet with ViT-Ti, ViT-S and ViT-B on ADE20K, 40K and 160K iterations. At `small`: CamVid, ViT-Ti.

The text gives the decoders 192, 384 and 512 channels, which would be 10.7, 41.4 and 127.0 M parameters. The table's
numbers need 512 channels for all three: the recipes follow the table.
"""

from __future__ import annotations

from functools import partial

from vitlab.core.experiment import Claim, Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import Check, claims_of, count, gain, one, table, verdicts_of
from vitlab.experiments.context_broadcasting._dense import ON_CAMVID, upernet, upernet_recipe
from vitlab.experiments.context_broadcasting._shared import MODULES, SIZES

TITLE = "CB Table 6: UperNet on ADE20K with CB and CB_S"

DIFFERENCES = ON_CAMVID

_LENGTHS = (40, 160)  # thousands of iterations
_PARAMETERS = {"tiny": 34.1, "small": 53.5, "base": 127.0}

#: Size -> arm -> mIoU after 40K and 160K iterations.
_ROWS = {
    "tiny": {"plain": (35.5, 38.9), "cb": (36.5, 39.0), "cb_s": (36.1, 39.8)},
    "small": {"plain": (41.5, 43.3), "cb": (41.9, 43.9), "cb_s": (41.6, 43.1)},
    "base": {"plain": (44.3, 45.0), "cb": (45.1, 45.6), "cb_s": (44.6, 45.3)},
}

PAPER = table(
    ("mIoU 40K", "mIoU 160K"),
    {
        SIZES[size] + (f" + {MODULES[arm]}" if arm in MODULES else ""): values
        for size, arms in _ROWS.items()
        for arm, values in arms.items()
    },
) + table(("# Params [M]",), {SIZES[size]: (parameters,) for size, parameters in _PARAMETERS.items()})


def _arm(size: str, module: str, length: int) -> str:
    return f"{size} {module} {length}K"


def _raises(size: str, module: str, place: int) -> Check:
    """The claim of a cell. CB_S lowers mIoU of ViT-S at 160K iterations, as the text says: its claim is the reverse."""
    plain, value = _ROWS[size]["plain"][place], _ROWS[size][module][place]
    first, second = (_arm(size, each, _LENGTHS[place]) for each in ("plain", module))
    lowers = value < plain
    claim = Claim(
        f"{size} {module} {_LENGTHS[place]}K",
        f"{MODULES[module]} {'lowers' if lowers else 'raises'} mIoU of UperNet with {SIZES[size]} after "
        f"{_LENGTHS[place]}K iterations",
        paper=round(abs(value - plain), 1),
        source="Table 6",
    )
    return gain(claim, second, first, "miou") if lowers else gain(claim, first, second, "miou")


def _millions(results: Results, size: str) -> float | None:
    found = one(results, size, "sizes", "parameters")
    return None if found is None else found / 1e6


_CHECKS = [
    *(
        count(
            Claim(
                f"{size}: parameters",
                f"UperNet with {SIZES[size]} has {parameters} M parameters",
                paper=parameters,
                deterministic=True,
                source="Table 6",
                unit="M",
            ),
            partial(_millions, size=size),
            tolerance=0.05,
        )
        for size, parameters in _PARAMETERS.items()
    ),
    *(
        _raises(size, module, place)
        for size in _ROWS
        for module in MODULES
        if module in _ROWS[size]
        for place in (0, 1)
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Counts, and fine-tuning of backbones that were trained on ImageNet-1K."""
    jobs = [Job(size, "sizes", recipe=upernet_recipe(size)) for size in SIZES]
    cells = [(size, module, length) for size in SIZES for module in _ROWS[size] for length in _LENGTHS]
    if scale in ("smoke", "small"):
        cells = [("tiny", module, 40) for module in _ROWS["tiny"]]
    for size, module, length in cells:
        jobs += upernet(scale, _arm(size, module, length), size, "" if module == "plain" else module, length)
    return jobs


def check(results: Results) -> list[Verdict]:
    """Counts are compared with the printed digits; mIoU is paired by seed."""
    return verdicts_of(_CHECKS, results)
