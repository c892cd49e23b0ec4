"""HDVW Fig. 7: ViT with convolutional MSAs of 3×3, 5×5 and 8×8 (global), and their robustness on CIFAR-100-C."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import Effect, claims, more, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs
from vitlab.experiments.how_vits_work._networks import NETWORKS
from vitlab.experiments.how_vits_work._readings import ERROR, NEP, NLL_TRAIN, ROBUSTNESS
from vitlab.experiments.how_vits_work._shared import CORRUPTED, EARLY, NEGATIVE, POINTS

TITLE = "HDVW Fig. 7: locality constraint improves ViT"

DIFFERENCES = CORRUPTED

_KERNELS = {f"{k}x{k}": NETWORKS[f"conv_vit_k{k}"] for k in (3, 5, 8)}

PAPER = [
    Published(f"kernel {kernel}", column, None)
    for kernel in _KERNELS
    for column in ("error", "NLL_train", "Hessian max eigenvalue spectrum", "accuracy on CIFAR-100-C")
]


def _closer(errors: Sequence[float]) -> float:
    """How much farther 8×8 is from 5×5 than 3×3 is."""
    three, five, eight = errors
    return eight - five - abs(three - five)


_CHECKS = [
    tested("error_5_8", "5×5 has a lower error than 8×8", more(ERROR, "8x8", "5x5"), "Fig. 7a", smallest=POINTS),
    tested("error_3_8", "3×3 has a lower error than 8×8", more(ERROR, "8x8", "3x3"), "Sec. 1.2", smallest=POINTS),
    tested("nll_5_8", "5×5 has a lower NLL_train than 8×8", more(NLL_TRAIN, "8x8", "5x5"), "Fig. 7a"),
    tested("nll_3_5", "5×5 has a lower NLL_train than 3×3", more(NLL_TRAIN, "3x3", "5x5"), "Fig. 7a"),
    tested("nll_3_8", "3×3 has a lower NLL_train than 8×8", more(NLL_TRAIN, "8x8", "3x3"), "Fig. 7a"),
    tested(
        "comparable",
        "The errors of 3×3 and 5×5 are closer to each other than that of 8×8 is above 5×5",
        Effect(tuple((ERROR, kernel) for kernel in _KERNELS), _closer, "points"),
        "Sec. 2: comparable",
        smallest=POINTS,
    ),
    tested(
        "negative_5_8",
        "5×5 has fewer negative eigenvalues than 8×8 (NEP)",
        more(NEP, f"8x8{EARLY}", f"5x5{EARLY}"),
        "Fig. 7b",
        smallest=NEGATIVE,
    ),
    tested(
        "negative_5_3",
        "5×5 has fewer negative eigenvalues than 3×3 (NEP)",
        more(NEP, f"3x3{EARLY}", f"5x5{EARLY}"),
        "Fig. 7b",
        smallest=NEGATIVE,
    ),
    tested(
        "robustness",
        "5×5 has a higher mean accuracy on CIFAR-100-C than 3×3",
        more(ROBUSTNESS, "5x5", "3x3"),
        "Sec. 2: significantly better",
        smallest=POINTS,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Convolutional ViTs with patches of 4×4 on CIFAR-100."""
    return jobs(scale, _KERNELS, "fit", "hessian, early", "corruptions")


def check(results: Results) -> list[Verdict]:
    """Differences paired by seed."""
    return verdicts(_CHECKS, results)
