"""HDVW App. A and App. E: training throughput on CIFAR-100.

HDVW's numbers are of an RTX 2080 Ti or a T4; only ratios between networks are compared. Each seed is one timing.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import Effect, Reading, claims, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import tiny_changes
from vitlab.experiments.how_vits_work._networks import NETWORKS

TITLE = "HDVW App. A, E: training throughput of ResNet, ViTs and AlterNet"

_RATES = {"resnet50": 320, "vit_tiny": 434, "pit_tiny": 364, "swin_tiny": 469, "alternet50": 473}
_FASTER = 20

PAPER = [
    *(Published(name, "images per second", rate) for name, rate in _RATES.items()),
    Published("alternet50 against preact_resnet50", "faster by [%]", _FASTER),
]

_RATE = Reading("images per second", ("speed",), lambda found: float(found.values["images_per_second"]))
_TIMINGS = 5


def _faster(arm: str, than: str) -> Effect:
    """The ratio of the rates, minus 1."""
    return Effect(((_RATE, arm), (_RATE, than)), lambda rates: rates[0] / rates[1] - 1)


_CHECKS = [
    tested(
        "alternet50",
        "Alter-ResNet-50 trains faster than pre-activation ResNet-50 (ratio − 1)",
        _faster("alternet50", "preact_resnet50"),
        "App. E",
        paper=_FASTER / 100,
    ),
    *(
        tested(
            name,
            f"{name} trains faster than resnet50 (ratio − 1)",
            _faster(name, "resnet50"),
            "App. A",
            paper=round(_RATES[name] / _RATES["resnet50"] - 1, 3),
        )
        for name in ("vit_tiny", "pit_tiny", "swin_tiny")
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """A training step of each network with batches of 96, as in the paper; tiny networks at `smoke`."""
    names = (*_RATES, "preact_resnet50")
    if scale == "smoke":
        procedure, recipe = "speed(batch_size=4, steps=1)", "how_vits_work_cifar"
        return [Job(name, procedure, recipe=recipe, changes=tiny_changes(NETWORKS[name])) for name in names]
    if scale == "released":
        return []
    return [
        Job(name, "speed(batch_size=96, steps=30)", recipe=NETWORKS[name].recipe, seed=seed, gpu_minutes=0.2)
        for seed in range(_TIMINGS)
        for name in names
    ]


def check(results: Results) -> list[Verdict]:
    """Ratios of the timings of one round."""
    return verdicts(_CHECKS, results)
