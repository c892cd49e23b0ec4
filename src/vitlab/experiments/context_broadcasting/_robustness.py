"""Tables 8 and S13: networks without a module, with CB_S and with CB, under three stress tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vitlab.core.experiment import Job, Published, Scale
from vitlab.experiments.context_broadcasting._checks import COLUMNS, Check, raises, table
from vitlab.experiments.context_broadcasting._shared import FILES, IMAGENET, MODULES, REPEATED

_TESTS = ("Occ", "ImageNet-A", "FGSM")

_EPSILON = ("The ε of FGSM is not published; 1/255 is our choice.",)
DIFFERENCES: dict[Scale, tuple[str, ...]] = {
    "small": _EPSILON,
    "released": _EPSILON,
    "full": (*REPEATED["full"], *_EPSILON),
}


def published(rows: Mapping[str, Sequence[float]], network: str) -> list[Published]:
    """Returns the numbers of the table."""
    names = {arm: network if arm == "plain" else f"{network} + {MODULES[arm]}" for arm in rows}
    return table(_TESTS, {names[arm]: values for arm, values in rows.items()})


def checks(rows: Mapping[str, Sequence[float]], network: str, source: str) -> list[Check]:
    """Returns the checks of each module and stress test, against the network without a module."""
    return [
        raises(test, ("plain", rows["plain"][place]), (arm, values[place]), MODULES[arm], source, network)
        for arm, values in rows.items()
        if arm != "plain"
        for place, test in enumerate(_TESTS)
    ]


def procedures(scale: Scale) -> dict[str, dict[str, Any]]:
    """Returns the stress tests of a scale, each with fields of its jobs."""
    images = {"smoke": 16, "small": 10_000}.get(scale, 50_000)
    found: dict[str, dict[str, Any]] = {COLUMNS[test][0]: {"images": images} for test in ("Occ", "FGSM")}
    return found | ({"imagenet_a": FILES["imagenet_a"]} if scale in ("released", "full") else {})


def released(model: str) -> list[Job]:
    """Returns the jobs of the network without a module, with published weights."""
    validation = {"data": "imagenet", "gpu_minutes": 5.0, **IMAGENET}
    return [
        Job("plain", procedure, model=model, **({"gpu_minutes": 1.0} if "needs" in fields else validation), **fields)
        for procedure, fields in procedures("released").items()
    ]
