"""HDVW Fig. C.3: ViT with patches of 2×2, 4×4 and 8×8 on CIFAR-100."""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, more, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs
from vitlab.experiments.how_vits_work._networks import NETWORKS, vit
from vitlab.experiments.how_vits_work._readings import ERROR, LOG_SIZE, NEP, NLL_TRAIN
from vitlab.experiments.how_vits_work._shared import EARLY, LOGARITHM, NEGATIVE, POINTS

TITLE = "HDVW Fig. C.3: a small patch size does not guarantee better performance"

_PATCHES = {
    "2x2": NETWORKS["vit_tiny"],
    "4x4": vit(rate=12000, patch_size=4),
    "8x8": vit(rate=12000, patch_size=8),
}

PAPER = [
    Published(f"patch {patch}", column, None)
    for patch in _PATCHES
    for column in ("error", "NLL_train", "Hessian max eigenvalue spectrum")
]

_CHECKS = [
    tested("large_error", "8×8 has a higher error than 4×4", more(ERROR, "8x8", "4x4"), "Fig. C.3a", smallest=POINTS),
    tested("large_nll", "8×8 has a higher NLL_train than 4×4", more(NLL_TRAIN, "8x8", "4x4"), "Fig. C.3a"),
    tested("small_error", "2×2 has a higher error than 4×4", more(ERROR, "2x2", "4x4"), "Fig. C.3a", smallest=POINTS),
    tested("small_nll", "2×2 has a higher NLL_train than 4×4", more(NLL_TRAIN, "2x2", "4x4"), "Fig. C.3a"),
    tested(
        "small_negative",
        "2×2 has more negative eigenvalues than 8×8 in the early phase (NEP)",
        more(NEP, f"2x2{EARLY}", f"8x8{EARLY}"),
        "Fig. C.3b",
        smallest=NEGATIVE,
    ),
    tested(
        "small_flat",
        "2×2 has smaller eigenvalues than 8×8 in the early phase (log of the mean size)",
        more(LOG_SIZE, f"8x8{EARLY}", f"2x2{EARLY}"),
        "Fig. C.3b",
        smallest=LOGARITHM,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ViT-Ti with three patch sizes on CIFAR-100."""
    return jobs(scale, _PATCHES, "fit", "hessian, early")


def check(results: Results) -> list[Verdict]:
    """Differences paired by seed."""
    return verdicts(_CHECKS, results)
