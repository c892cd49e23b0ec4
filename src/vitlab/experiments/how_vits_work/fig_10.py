"""HDVW Fig. 10: feature map similarities (a) and lesion study (b) of ResNet and Swin."""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, own, tested, verdicts
from vitlab.experiments.how_vits_work._feature_maps import STAGE_DROP, lesion
from vitlab.experiments.how_vits_work._jobs import jobs, released
from vitlab.experiments.how_vits_work._networks import RELEASED_CIFAR100, arms
from vitlab.experiments.how_vits_work._shared import POINTS

TITLE = "HDVW Fig. 10: multi-stage networks behave like a series of small models"

_ARMS = ("resnet50", "swin_tiny")

PAPER = [
    Published(network, column, None)
    for network in ("ResNet", "Swin")
    for column in ("feature map similarity by pair of layers", "decrease in accuracy without a unit")
]

_CHECKS = [
    tested(
        "resnet_blocks",
        "CKA of neighbouring blocks of ResNet is lower across a stage boundary than inside stages",
        own(STAGE_DROP, "resnet50"),
        "Fig. 10a",
    ),
    tested(
        "swin_blocks",
        "CKA of neighbouring blocks of Swin is lower across a stage boundary than inside stages",
        own(STAGE_DROP, "swin_tiny"),
        "Fig. 10a",
    ),
    tested(
        "early_stage",
        "Removing a Conv of the first stage of ResNet costs more accuracy than one of the last stage",
        own(lesion("Conv", "first", "last"), "resnet50"),
        "Sec. 4.1",
        smallest=POINTS,
    ),
    tested(
        "stage_start",
        "Removing the first Conv of a stage of ResNet costs more accuracy than the last",
        own(lesion("Conv", "start", "end"), "resnet50"),
        "Fig. 10b, Sec. 4.1",
        smallest=POINTS,
    ),
    tested(
        "swin_mlp",
        "Removing an MLP of Swin costs more accuracy at the beginning of a stage than at its end",
        own(lesion("MLP", "start", "end"), "swin_tiny"),
        "Fig. 10b, Sec. 4.1",
        smallest=POINTS,
    ),
    tested(
        "swin_msa",
        "Removing an MSA of Swin costs more accuracy at the end of a stage than at its beginning",
        own(lesion("MSA", "end", "start"), "swin_tiny"),
        "Fig. 10b, Sec. 4.1",
        smallest=POINTS,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ResNet-50 and Swin-Ti on CIFAR-100; HDVW's own weights at `released`."""
    if scale == "released":
        return released({arm: RELEASED_CIFAR100[arm] for arm in _ARMS}, "cka", "lesion")
    return jobs(scale, arms(_ARMS), "cka", "lesion")


def check(results: Results) -> list[Verdict]:
    """Contrasts inside one network, by run or by part of the images."""
    return verdicts(_CHECKS, results)
