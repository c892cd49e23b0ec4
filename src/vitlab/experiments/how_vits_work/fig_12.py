"""HDVW Fig. 12: the build-up of AlterNet (a), its accuracy and robustness (b) and its Hessian spectrum (c).

At `released` HDVW's own weights of ResNet-50, ViT-Ti, PiT-Ti and Swin-Ti are measured. Weights of AlterNet, of
pre-activation ResNet and of ResNeXt on CIFAR-100 are not published.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._block_plans import build_up
from vitlab.experiments.how_vits_work._effects import claims, more, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs, released
from vitlab.experiments.how_vits_work._networks import RELEASED_CIFAR100, alternet, arms
from vitlab.experiments.how_vits_work._readings import ACCURACY, LOG_APE, NEP, ROBUSTNESS
from vitlab.experiments.how_vits_work._shared import CORRUPTED, EARLY, LOGARITHM, NEGATIVE, POINTS

TITLE = "HDVW Fig. 12: AlterNet outperforms CNNs and ViTs"

DIFFERENCES = CORRUPTED

#: MSAs per stage, in the order of the build-up rule.
_PLANS = (*(build_up((3, 4, 6, 4), step) for step in range(6)), build_up((3, 4, 6, 4), 4, most=(0, 1, 1, 2)))
_COMPARED = ("resnet50", "resnext50", "vit_tiny", "pit_tiny", "swin_tiny")

PAPER = [
    *(Published(f"MSAs {plan}", "accuracy", None) for plan in _PLANS),
    *(Published(name, column, None) for name in (*_COMPARED, "alternet50") for column in ("accuracy", "robustness")),
    *(Published(name, "Hessian max eigenvalue spectrum", None) for name in ("resnet50", "alternet50")),
]


def _arm(plan: tuple[int, ...]) -> str:
    return f"MSAs {plan}"


_CHECKS = [
    tested(
        "stage_4",
        "MSAs in stage 4 raise the accuracy of the CNN",
        more(ACCURACY, _arm((0, 0, 0, 2)), _arm((0, 0, 0, 0))),
        "Fig. 12a",
        smallest=POINTS,
    ),
    tested(
        "stage_3",
        "A second MSA in stage 3 lowers the accuracy",
        more(ACCURACY, _arm((0, 0, 1, 2)), _arm((0, 0, 2, 2))),
        "Fig. 12a, Sec. 4.1",
        smallest=POINTS,
    ),
    tested(
        "stage_2",
        "An MSA at the end of stage 2 raises the accuracy",
        more(ACCURACY, _arm((0, 1, 1, 2)), _arm((0, 0, 1, 2))),
        "Fig. 12a, Sec. 4.1",
        smallest=POINTS,
    ),
    *(
        tested(
            f"above_{name}",
            f"AlterNet is more accurate than {name}",
            more(ACCURACY, "alternet50", name),
            "Fig. 12b",
            smallest=POINTS,
        )
        for name in _COMPARED
    ),
    tested(
        "cnn_above_vit",
        "ResNet is more accurate than the canonical ViT",
        more(ACCURACY, "resnet50", "vit_tiny"),
        "Sec. 4.2",
        smallest=POINTS,
    ),
    tested(
        "robustness",
        "AlterNet has a higher mean accuracy on CIFAR-100-C than ResNet",
        more(ROBUSTNESS, "alternet50", "resnet50"),
        "Fig. 12b",
        smallest=POINTS,
    ),
    tested(
        "flat",
        "The positive eigenvalues of AlterNet are smaller than those of its ResNet in the early phase (log APE)",
        more(LOG_APE, f"preact_resnet50{EARLY}", f"alternet50{EARLY}"),
        "Fig. 12c",
        smallest=LOGARITHM,
    ),
    tested(
        "few_negative",
        "AlterNet has fewer negative eigenvalues than ViT in the early phase (NEP)",
        more(NEP, f"vit_tiny{EARLY}", f"alternet50{EARLY}"),
        "Sec. 4.1: only a few",
        smallest=NEGATIVE,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """The steps of the build-up rule, and AlterNet-50 with other networks, on CIFAR-100; no AlterNet at `released`."""
    if scale == "released":
        return released(RELEASED_CIFAR100, "fit", "corruptions")
    return [
        *jobs(scale, {_arm(plan): alternet(plan) for plan in _PLANS}, "fit"),
        *jobs(scale, arms((*_COMPARED, "alternet50")), "fit", "corruptions"),
        *jobs(scale, arms(("preact_resnet50", "vit_tiny", "alternet50")), "hessian, early"),
    ]


def check(results: Results) -> list[Verdict]:
    """Differences paired by seed."""
    return verdicts(_CHECKS, results)
