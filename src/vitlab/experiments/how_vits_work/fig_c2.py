"""HDVW Fig. C.2: ViT and ResNet trained for 75 to 1200 epochs on CIFAR-100; 15 to 120 epochs at `small`."""

from __future__ import annotations

from dataclasses import replace

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import Effect, Reading, claims, tested, trend, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs
from vitlab.experiments.how_vits_work._networks import NETWORKS, Network
from vitlab.experiments.how_vits_work._readings import ERROR, NLL_TRAIN
from vitlab.experiments.how_vits_work._shared import POINTS

TITLE = "HDVW Fig. C.2: a large number of epochs does not make ViT overfit"

_PAPER_EPOCHS = (75, 150, 300, 600, 1200)
_SMALL_EPOCHS = (15, 30, 60, 120)
_NAMES = {"vit_tiny": "ViT", "resnet50": "ResNet"}

#: Lengths of training relative to the shortest: the arms of all scales.
_LENGTHS = (1, 2, 4, 8)
_LONGEST = 16  # only in the paper

PAPER = [
    Published(f"{name}, {epochs} epochs", column, None)
    for name in _NAMES.values()
    for epochs in _PAPER_EPOCHS
    for column in ("error", "NLL_train")
]


def _arm(name: str, length: int) -> str:
    return f"{name}, length {length}"


def _falls(reading: Reading) -> Effect:
    """Minus the slope of ViT's reading over the doublings of the epochs."""
    positions = {_arm("vit_tiny", length): float(index) for index, length in enumerate(_LENGTHS)}
    return trend(reading, positions, sign=-1, per="doubling")


def _always_worse(reading: Reading) -> Effect:
    """The smallest difference between ViT and ResNet over all numbers of epochs."""
    terms = tuple((reading, _arm(name, length)) for name in _NAMES for length in _LENGTHS)
    count = len(_LENGTHS)
    return Effect(terms, lambda values: min(values[i] - values[count + i] for i in range(count)), reading.unit)


_CHECKS = [
    tested("error_falls", "The error of ViT falls as the epochs double", _falls(ERROR), "App. C", smallest=POINTS),
    tested("nll_falls", "The NLL_train of ViT falls as the epochs double", _falls(NLL_TRAIN), "App. C"),
    tested(
        "error_above_resnet",
        "The error of ViT is above that of ResNet for every number of epochs",
        _always_worse(ERROR),
        "Fig. C.2",
        smallest=POINTS,
    ),
    tested(
        "nll_above_resnet",
        "The NLL_train of ViT is above that of ResNet for every number of epochs",
        _always_worse(NLL_TRAIN),
        "Fig. C.2",
    ),
]
CLAIMS = claims(_CHECKS)


def _network(name: str, epochs: int, scale: Scale) -> Network:
    base = NETWORKS[name]
    if scale == "full":
        recipe = f"how_vits_work_cifar(network={name!r}, epochs={epochs})"
        return replace(base, recipe=recipe, epochs={"full": epochs + 5})
    return replace(base, changes=(f"epochs={epochs}", "snapshots=()"), epochs={"small": epochs})


def plan(scale: Scale) -> list[Job]:
    """ViT-Ti and ResNet-50, each with several lengths of training; the longest of the paper is measured, not judged."""
    epochs = _PAPER_EPOCHS if scale == "full" else _SMALL_EPOCHS
    lengths = (*_LENGTHS, _LONGEST)
    networks = {
        _arm(name, length): _network(name, each, scale)
        for name in _NAMES
        for length, each in zip(lengths, epochs, strict=False)
    }
    return jobs(scale, networks, "fit")


def check(results: Results) -> list[Verdict]:
    """Slopes and differences paired by seed."""
    return verdicts(_CHECKS, results)
