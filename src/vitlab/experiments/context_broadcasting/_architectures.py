"""Tables 11 and S14: other architectures, plain and with CB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vitlab.core.experiment import Job, Scale
from vitlab.experiments.context_broadcasting._checks import Check, raises
from vitlab.experiments.context_broadcasting._shared import CIFAR100, IMAGENET, full_minutes, runs

_CB = " | ContextBroadcast(blocks='upper')"


@dataclass(frozen=True)
class Architecture:
    """A row of these tables.

    Args:
        name: its name in the paper.
        plain, cb: top-1 without and with CB.
        macs, epochs: multiply-accumulates in 10⁹ and epochs, for the cost.
        smoke: a small model of the same architecture, for scenes of 32×32.
        small: the same for CIFAR-100; '' for none.
        pretrained: the model with published weights; '' for none.
        weights: its file below the data root, for `{root}` in `pretrained`; '' if the model's library has them.
    """

    name: str
    plain: float
    cb: float
    macs: float
    epochs: int
    smoke: str
    small: str = ""
    pretrained: str = ""
    weights: str = ""


def arm_of(architecture: str, part: str) -> str:
    """Returns the name of an arm."""
    return f"{architecture} {part or 'plain'}"


def checks(rows: Mapping[str, Architecture], source: str) -> list[Check]:
    """Returns the check of each architecture."""
    return [
        raises("Acc@1", (arm_of(key, ""), row.plain), (arm_of(key, "cb"), row.cb), "CB", source, row.name)
        for key, row in rows.items()
    ]


def jobs(scale: Scale, rows: Mapping[str, Architecture]) -> list[Job]:
    """Returns the jobs of a scale: training, or the plain model with published weights on ImageNet."""
    found: list[Job] = []
    for key, row in rows.items():
        if scale == "released" and row.pretrained:
            whole = {"data": "imagenet", "images": 50_000, "gpu_minutes": 3.0, **IMAGENET}
            whole["needs"] = (*IMAGENET["needs"], *([row.weights] if row.weights else []))
            found.append(Job(arm_of(key, ""), "calibration", model=row.pretrained, **whole))
        for part in ("", "cb"):
            arm, calls = arm_of(key, part), _CB if part else ""
            if scale == "smoke":
                found += runs(scale, arm, "quick(images=96, epochs=1)", changes=(f"model={row.smoke}{calls}",))
            elif scale == "small" and row.small:
                fields = {**CIFAR100, "changes": (f"model={row.small}{calls}",), "gpu_minutes": 8.0}
                found += runs(scale, arm, "vit_tiny_cifar100", **fields)
            elif scale == "full":
                recipe = f"context_broadcasting_architectures(architecture={key!r}, part={part!r})"
                found += runs(scale, arm, recipe, **IMAGENET, gpu_minutes=full_minutes(row.macs, row.epochs))
    return found
