"""CB Table 5: CB and CB_S on ImageNet-1K, ImageNet-V2 and ImageNet-ReaL, for ViT-Ti, ViT-S and ViT-B.

Sec. 4.2 calls this table "Table S12". At `small` there are only top-1 and top-5 on CIFAR-100, without ViT-B.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting import _accuracy
from vitlab.experiments.context_broadcasting._checks import claims_of, verdicts_of
from vitlab.experiments.context_broadcasting._shared import FILES, IMAGENET, SIZES, Network

TITLE = "CB Table 5: CB and CB_S on ImageNet"

DIFFERENCES = _accuracy.DIFFERENCES

_ROWS: _accuracy.Rows = {
    "tiny": {
        "plain": (5.7, 1.3, 72.2, 91.1, 59.9, 80.1),
        "cb": (5.7, 1.3, 73.4, 91.9, 61.3, 81.0),
        "cb_s": (5.7, 1.3, 73.5, 91.9, 61.4, 81.2),
    },
    "small": {
        "plain": (22.0, 4.6, 79.9, 95.0, 68.1, 85.7),
        "cb": (22.0, 4.6, 80.8, 95.4, 69.3, 86.2),
        "cb_s": (22.0, 4.6, 80.4, 95.1, 68.7, 85.9),
    },
    "base": {
        "plain": (86.6, 17.6, 81.8, 95.6, 70.5, 86.7),
        "cb": (86.6, 17.6, 82.1, 95.7, 71.1, 86.9),
        "cb_s": (86.6, 17.6, 82.1, 95.8, 71.1, 86.9),
    },
}
_MODELS = {size: f"timm/deit_{size}_patch16_224" for size in SIZES}

PAPER = _accuracy.published(_ROWS)
_CHECKS = _accuracy.checks(_ROWS, "Table 5")
CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Counts, training, and the published sets; at `released` the plain networks on these sets."""
    jobs = _accuracy.counted(_MODELS)
    for size in SIZES:
        for module in _accuracy.PARTS:
            arm, network = (
                _accuracy.arm_of(size, module),
                Network(module if module != "plain" else "", size, alone=False),
            )
            jobs += network.jobs(scale, arm)
            for procedure in ("imagenet_v2", "imagenet_real") if scale == "full" else ():
                jobs += network.jobs(scale, arm, procedure, **FILES[procedure])
    if scale == "released":
        for size, model in _MODELS.items():
            pretrained, arm = f"{model}(pretrained=True)", _accuracy.arm_of(size, "plain")
            whole = {"data": "imagenet", "images": 50_000, "gpu_minutes": 2.0, **IMAGENET}
            jobs.append(Job(arm, "calibration", model=pretrained, **whole))
            for procedure in ("imagenet_v2", "imagenet_real"):
                jobs.append(Job(arm, procedure, model=pretrained, gpu_minutes=2.0, **FILES[procedure]))
    return jobs


def check(results: Results) -> list[Verdict]:
    """Counts are compared with the printed digits; accuracies are paired by seed."""
    return verdicts_of(_CHECKS, results)
