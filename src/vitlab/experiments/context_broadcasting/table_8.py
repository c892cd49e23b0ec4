"""CB Table 8: ViT-S with CB_S and CB: centre occlusion, ImageNet-A and FGSM (called "Table S13" in Sec. 4.6).

ε of FGSM is not published: 1/255 is our choice. At `small` there is no ImageNet-A.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting import _robustness
from vitlab.experiments.context_broadcasting._checks import claims_of, verdicts_of
from vitlab.experiments.context_broadcasting._shared import Network

TITLE = "CB Table 8: robustness of ViT-S with CB and CB_S"

DIFFERENCES = _robustness.DIFFERENCES

_ROWS = {"plain": (73.0, 19.0, 27.2), "cb_s": (73.7, 19.1, 27.8), "cb": (74.0, 21.2, 32.3)}

PAPER = _robustness.published(_ROWS, "ViT-S")
_CHECKS = _robustness.checks(_ROWS, "ViT-S", "Table 8")
CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Stress tests of the trained networks; at `released` of the plain one."""
    if scale == "released":
        return _robustness.released("timm/deit_small_patch16_224(pretrained=True)")
    networks = {arm: Network("" if arm == "plain" else arm) for arm in _ROWS}
    return [
        job
        for arm, network in networks.items()
        for procedure, fields in _robustness.procedures(scale).items()
        for job in network.jobs(scale, arm, procedure, **fields)
    ]


def check(results: Results) -> list[Verdict]:
    """Paired by seed."""
    return verdicts_of(_CHECKS, results)
