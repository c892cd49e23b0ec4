"""CB Table S12: distilled ViT-Ti, ViT-S and ViT-B with CB and CB_S (supplement: Table S1). There is no `small`."""

from __future__ import annotations

from vitlab.core.experiment import Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting import _accuracy
from vitlab.experiments.context_broadcasting._checks import claims_of, verdicts_of
from vitlab.experiments.context_broadcasting._distilled import distilled
from vitlab.experiments.context_broadcasting._shared import FILES, SIZES

TITLE = "CB Table S12: distilled networks with CB and CB_S"

DIFFERENCES = _accuracy.DIFFERENCES

_ROWS: _accuracy.Rows = {
    "tiny": {
        "plain": (5.9, 1.3, 74.5, 91.9, 62.4, 82.1),
        "cb": (5.9, 1.3, 74.7, 92.3, 62.5, 82.3),
        "cb_s": (5.9, 1.3, 75.3, 92.5, 63.4, 82.8),
    },
    "small": {
        "plain": (22.4, 4.6, 81.2, 95.4, 69.8, 86.9),
        "cb": (22.4, 4.6, 81.3, 95.6, 70.2, 87.0),
        "cb_s": (22.4, 4.6, 81.6, 95.6, 70.9, 87.3),
    },
    "base": {
        "plain": (87.3, 17.6, 83.4, 96.4, 72.2, 88.1),
        "cb": (87.3, 17.6, 83.5, 96.5, 72.3, 88.1),
        "cb_s": (87.3, 17.6, 83.6, 96.5, 73.4, 88.3),
    },
}
_MODELS = {size: f"timm/deit_{size}_distilled_patch16_224" for size in SIZES}

PAPER = _accuracy.published(_ROWS, " distilled")
_CHECKS = _accuracy.checks(_ROWS, "Table S12", " distilled")
CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Counts, training with a teacher, and the published sets; at `released` the networks without a module."""
    jobs = _accuracy.counted(_MODELS)
    for size, model in _MODELS.items():
        for module in _accuracy.PARTS:
            arm, part = _accuracy.arm_of(size, module), "" if module == "plain" else module
            jobs += distilled(scale, arm, size, part)
            for procedure in ("imagenet_v2", "imagenet_real") if scale == "full" else ():
                jobs += distilled(scale, arm, size, part, procedure, **FILES[procedure])
        for procedure in ("imagenet_v2", "imagenet_real") if scale == "released" else ():
            arm, pretrained = _accuracy.arm_of(size, "plain"), f"{model}(pretrained=True)"
            jobs.append(Job(arm, procedure, model=pretrained, gpu_minutes=2.0, **FILES[procedure]))
    return jobs


def check(results: Results) -> list[Verdict]:
    """Counts are compared with the printed digits; accuracies are paired by seed."""
    return verdicts_of(_CHECKS, results)
