"""HDVW Fig. D.1: variance of feature map points in PiT and Swin."""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, own, tested, verdicts
from vitlab.experiments.how_vits_work._feature_maps import variance
from vitlab.experiments.how_vits_work._jobs import jobs, released
from vitlab.experiments.how_vits_work._networks import RELEASED_CIFAR100, arms

TITLE = "HDVW Fig. D.1: MSAs in PiT and Swin reduce the variance of feature maps, except in stage 3 of Swin"

_ARMS = ("pit_tiny", "swin_tiny")

PAPER = [Published(network, "feature map variance by depth", None) for network in ("PiT", "Swin")]

_CHECKS = [
    tested("pit", "MSAs in PiT reduce the variance", own(variance("MSA"), "pit_tiny", -1), "Fig. D.1"),
    tested(
        "swin",
        "MSAs in Swin reduce the variance outside stage 3",
        own(variance("MSA", without=3), "swin_tiny", -1),
        "Fig. D.1",
    ),
    tested(
        "swin_stage_3",
        "The last MSA of stage 3 of Swin does not reduce the variance: it increases it",
        own(variance("MSA", stages=(3,), last=True), "swin_tiny"),
        "Fig. D.1, App. D",
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """PiT-Ti and Swin-Ti on CIFAR-100; HDVW's own weights at `released`."""
    if scale == "released":
        return released({arm: RELEASED_CIFAR100[arm] for arm in _ARMS}, "variance")
    return jobs(scale, arms(_ARMS), "variance")


def check(results: Results) -> list[Verdict]:
    """Changes relative to the mean variance of the network, by run or by part of the images."""
    return verdicts(_CHECKS, results)
