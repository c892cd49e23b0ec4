"""CB Table S13: distilled ViT-S with CB_S and CB: centre occlusion, ImageNet-A and FGSM (supplement: Table S2).

The text of B.2 says that FGSM rises by 2.2 and 4.7, the table gives 1.2 and 3.7: the claims follow the table. There is
no `small`.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting import _robustness
from vitlab.experiments.context_broadcasting._checks import claims_of, verdicts_of
from vitlab.experiments.context_broadcasting._distilled import distilled

TITLE = "CB Table S13: robustness of distilled ViT-S with CB and CB_S"

DIFFERENCES = _robustness.DIFFERENCES

_ROWS = {"plain": (74.6, 21.5, 11.8), "cb_s": (75.1, 22.6, 13.0), "cb": (75.1, 23.6, 15.5)}

PAPER = _robustness.published(_ROWS, "ViT-S distilled")
_CHECKS = _robustness.checks(_ROWS, "distilled ViT-S", "Table S13")
CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Stress tests of the trained networks; at `released` of the plain one."""
    if scale == "released":
        return _robustness.released("timm/deit_small_distilled_patch16_224(pretrained=True)")
    return [
        job
        for arm in _ROWS
        for procedure, fields in _robustness.procedures(scale).items()
        for job in distilled(scale, arm, "small", "" if arm == "plain" else arm, procedure, **fields)
    ]


def check(results: Results) -> list[Verdict]:
    """Paired by seed."""
    return verdicts_of(_CHECKS, results)
