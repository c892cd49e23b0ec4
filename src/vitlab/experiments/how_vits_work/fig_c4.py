"""HDVW Fig. C.4: loss landscapes (a), trajectories (b) and Hessian spectra (c) of ResNet, ViT, PiT and Swin.

The authors have retracted the trajectories (panel b and Fig. 1b) as hard to reproduce and misleading: the claim is
kept, and a verdict on it supports no conclusion.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import Effect, claims, more, summed, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs
from vitlab.experiments.how_vits_work._networks import arms
from vitlab.experiments.how_vits_work._readings import LOG_SIZE, NEAR_RISE, NEP, ROUGHNESS, TURNING
from vitlab.experiments.how_vits_work._shared import EARLY, LATE, LOGARITHM, NEGATIVE

TITLE = "HDVW Fig. C.4: PiT and Swin also flatten the loss (panel b, trajectories, is retracted by its authors)"

_VITS = ("vit_tiny", "pit_tiny", "swin_tiny")

PAPER = [
    Published(network, column, None)
    for network in ("ResNet", "ViT", "PiT", "Swin")
    for column in ("loss landscape", "trajectory (retracted)", "Hessian spectrum, early", "Hessian spectrum, late")
]

_CHECKS = [
    tested(
        "pit_flat",
        "Next to the optimum the loss of PiT rises less than that of ViT",
        more(NEAR_RISE, "vit_tiny", "pit_tiny"),
        "Fig. C.4a",
    ),
    tested(
        "swin_parabolic",
        "The loss landscape of Swin is closer to a paraboloid than that of ViT",
        more(ROUGHNESS, "vit_tiny", "swin_tiny"),
        "Fig. C.4a: almost perfect smooth parabolic",
    ),
    tested(
        "smooth_trajectories",
        "Retracted by the authors: all three ViTs have smoother trajectories than ResNet (changes of the angle)",
        Effect(
            ((TURNING, "resnet50"), *((TURNING, arm) for arm in _VITS)),
            lambda values: values[0] - max(values[1:]),
        ),
        "Fig. C.4b, retracted",
    ),
    tested(
        "pit_convex",
        "PiT has fewer negative eigenvalues than ViT in the early phase (NEP)",
        more(NEP, f"vit_tiny{EARLY}", f"pit_tiny{EARLY}"),
        "Fig. C.4c, App. C",
        smallest=NEGATIVE,
    ),
    tested(
        "swin_negative",
        "Swin has more negative eigenvalues than PiT in the early phase (NEP)",
        more(NEP, f"swin_tiny{EARLY}", f"pit_tiny{EARLY}"),
        "Fig. C.4c, App. C",
        smallest=NEGATIVE,
    ),
    tested(
        "swin_small",
        "The eigenvalues of Swin are smaller than those of ViT in the early phase (log of the mean size)",
        more(LOG_SIZE, f"vit_tiny{EARLY}", f"swin_tiny{EARLY}"),
        "Fig. C.4c, App. C",
        smallest=LOGARITHM,
    ),
    tested(
        "swin_late",
        "From the early to the late phase the eigenvalues of Swin grow less than those of ViT",
        summed(
            (1, LOG_SIZE, f"vit_tiny{LATE}"),
            (-1, LOG_SIZE, f"vit_tiny{EARLY}"),
            (-1, LOG_SIZE, f"swin_tiny{LATE}"),
            (1, LOG_SIZE, f"swin_tiny{EARLY}"),
        ),
        "App. C",
        smallest=LOGARITHM,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ResNet-50, ViT-Ti, PiT-Ti and Swin-Ti on CIFAR-100."""
    return jobs(scale, arms(("resnet50", *_VITS)), "landscape", "trajectory", "hessian, early", "hessian, late")


def check(results: Results) -> list[Verdict]:
    """Differences paired by seed."""
    return verdicts(_CHECKS, results)
