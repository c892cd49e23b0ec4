"""HDVW Fig. D.2: high frequencies before and after every MSA and MLP of PiT and Swin.

HDVW measures the published PiT and Swin of timm, so that `full` is `released`.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import Check, claims, own, tested, verdicts
from vitlab.experiments.how_vits_work._feature_maps import amplitude
from vitlab.experiments.how_vits_work._jobs import jobs, released
from vitlab.experiments.how_vits_work._networks import RELEASED, arms

TITLE = "HDVW Fig. D.2: MSAs in PiT and Swin reduce high frequencies, MLPs amplify them"

_ARMS = {"pit_tiny": "PiT", "swin_tiny": "Swin"}

PAPER = [Published(network, "Δ log amplitude by depth", None) for network in _ARMS.values()]


def _checks(arm: str, network: str) -> list[Check]:
    return [
        tested(
            f"{arm}_msa",
            f"MSAs in {network} decrease the amplitude of high frequencies",
            own(amplitude("MSA"), arm, -1),
            "Fig. D.2, App. D",
        ),
        tested(
            f"{arm}_mlp",
            f"MLPs in {network} increase the amplitude of high frequencies",
            own(amplitude("MLP"), arm),
            "Fig. D.2, App. D",
        ),
    ]


_CHECKS = [check for arm, network in _ARMS.items() for check in _checks(arm, network)]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """PiT-Ti and Swin-Ti: on CIFAR-100 at `small`, published weights on ImageNet at `released` and `full`."""
    if scale in ("released", "full"):
        return released({arm: RELEASED[arm] for arm in _ARMS}, "fourier")
    return jobs(scale, arms(_ARMS), "fourier")


def check(results: Results) -> list[Verdict]:
    """Mean changes of the amplitude, by run or by part of the images."""
    return verdicts(_CHECKS, results)
