"""HDVW Fig. 6: ViT with a GAP classifier instead of the class token; and SAM, the other smoothing method of Sec. 2.

The remark on SAM quotes Chen et al. (2021) without a number; ρ = 0.05 is our choice.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, more, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs
from vitlab.experiments.how_vits_work._networks import NETWORKS, vit
from vitlab.experiments.how_vits_work._readings import ACCURACY, NEP
from vitlab.experiments.how_vits_work._shared import EARLY, NEGATIVE, POINTS

TITLE = "HDVW Fig. 6: GAP suppresses negative Hessian eigenvalues; SAM helps ViT"

_GAIN = 2.7

PAPER = [
    Published("ViT with GAP", "gain in accuracy [points]", _GAIN),
    Published("ViT with GAP", "Hessian max eigenvalue spectrum", None),
    Published("ViT with SAM", "gain in accuracy [points]", None),
]

_CHECKS = [
    tested(
        "gap_convexifies",
        "GAP suppresses negative eigenvalues of ViT in the early phase (NEP)",
        more(NEP, f"class token{EARLY}", f"gap{EARLY}"),
        "Fig. 6",
        smallest=NEGATIVE,
    ),
    tested(
        "gap_accuracy", "GAP raises the accuracy of ViT", more(ACCURACY, "gap", "class token"), "Sec. 2", paper=_GAIN
    ),
    tested(
        "sam",
        "SAM raises the accuracy of ViT",
        more(ACCURACY, "sam", "class token"),
        "Sec. 2, after Chen et al. (2021)",
        smallest=POINTS,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ViT-Ti with class token, with GAP, and with SAM, on CIFAR-100."""
    networks = {"class token": NETWORKS["vit_tiny"], "gap": vit(pool="avg")}
    sam = {"sam": vit(rate=2170, changes=("optimizer.sam=0.05",))}
    return jobs(scale, networks, "fit", "hessian, early") + jobs(scale, sam, "fit")


def check(results: Results) -> list[Verdict]:
    """Differences paired by seed."""
    return verdicts(_CHECKS, results)
