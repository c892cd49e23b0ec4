"""HDVW Fig. 1: loss landscapes (a), trajectories (b) and Hessian max eigenvalue spectra (c) of ResNet and ViT.

The authors have retracted the trajectories (panel b and Fig. C.4b) as hard to reproduce and misleading: the claim is
kept, and a verdict on it supports no conclusion. The convex shape of the landscape is mostly the l2 term, as the
authors agree: the NLL is a claim of its own.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, more, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs
from vitlab.experiments.how_vits_work._networks import arms
from vitlab.experiments.how_vits_work._readings import LOG_SIZE, NLL_RISE, RISE, TURNING
from vitlab.experiments.how_vits_work._shared import EARLY, LOGARITHM

TITLE = "HDVW Fig. 1: MSAs flatten the loss landscape (panel b, trajectories, is retracted by its authors)"

PAPER = [
    Published(network, column, None)
    for network in ("ResNet", "ViT")
    for column in ("loss landscape", "trajectory (retracted)", "Hessian max eigenvalue spectrum")
]

_CHECKS = [
    tested(
        "flat_landscape",
        "The loss (NLL + l2) of ViT rises less to the boundary of the plane than that of ResNet",
        more(RISE, "resnet50", "vit_tiny"),
        "Fig. 1a, Sec. 2",
    ),
    tested(
        "flat_nll",
        "The NLL without l2 of ViT rises less to the boundary of the plane than that of ResNet",
        more(NLL_RISE, "resnet50", "vit_tiny"),
        "Fig. 1a without its l2 term",
    ),
    tested(
        "smooth_trajectory",
        "Retracted by the authors: ViT converges along a smoother trajectory than ResNet (changes of the angle)",
        more(TURNING, "resnet50", "vit_tiny"),
        "Fig. 1b, retracted",
    ),
    tested(
        "small_eigenvalues",
        "The Hessian eigenvalues of ViT are smaller than those of ResNet in the early phase (log of the mean size)",
        more(LOG_SIZE, f"resnet50{EARLY}", f"vit_tiny{EARLY}"),
        "Fig. 1c, Sec. 2",
        smallest=LOGARITHM,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ResNet-50 and ViT-Ti on CIFAR-100."""
    return jobs(scale, arms(("resnet50", "vit_tiny")), "landscape", "trajectory", "hessian, early")


def check(results: Results) -> list[Verdict]:
    """Differences paired by seed."""
    return verdicts(_CHECKS, results)
