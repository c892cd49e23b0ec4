"""Block plans: the build-up rule, and properties of plans, 1.0 where a plan has them, else 0.0."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.experiments.how_vits_work._effects import Effect, Reading, own

__all__ = ["alternates", "build_up", "depths_of", "property_of", "stages_of"]


def build_up(depths: Sequence[int], step: int, most: Sequence[int] | None = None) -> tuple[int, ...]:
    """The build-up rule (HDVW Sec. 4.1): MSAs per stage after a number of replacements.

    "Alternately replace Conv blocks with MSA blocks from the end of a baseline CNN model." Every second block is
    replaced, from the last stage to the first, so a stage of n blocks takes n // 2 MSAs. Steps 0, 1, 2, … of the
    baseline (3, 4, 6, 4) are the models of Fig. 12a.

    "If the added MSA block does not improve predictive performance, replace a Conv block located at the end of an
    earlier stage": such limits, found by experiment, are given as `most`.

    Args:
        depths: blocks per stage of the convolutional baseline.
        step: number of MSAs.
        most: maximum number of MSAs of each stage; by default n // 2.

    Returns:
        The number of MSAs of each stage, the setting `plan` of AlterNet.

    >>> [build_up((3, 4, 6, 4), step) for step in range(4)]
    [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 0, 2), (0, 0, 1, 2)]
    >>> build_up((3, 4, 6, 4), 6)  # ImageNet, Fig. D.5
    (0, 1, 3, 2)
    >>> build_up((3, 4, 6, 4), 4, most=(0, 1, 1, 2))  # CIFAR-100, Fig. 11: a second MSA in stage 3 harmed
    (0, 1, 1, 2)
    """
    room = [depth // 2 for depth in depths]
    if most is not None:
        room = [min(pair) for pair in zip(room, most, strict=True)]
    plan = []
    for places in reversed(room):
        plan.append(min(places, step))
        step -= plan[-1]
    return tuple(reversed(plan))


def stages_of(found: Measurement) -> list[list[str]]:
    """The kinds of the blocks of each stage, `Conv` or `MSA`."""
    kinds = ["MSA" if "attention" in str(mixer) else "Conv" for mixer in found.values["mixer"]]
    numbers = np.asarray(found.values["stage"])
    return [[kind for kind, each in zip(kinds, numbers, strict=True) if each == stage] for stage in np.unique(numbers)]


def depths_of(found: Measurement) -> list[int]:
    """The number of blocks of each stage."""
    return [len(stage) for stage in stages_of(found)]


def alternates(stage: list[str]) -> bool:
    """Whether a stage is Convs, then alternating Convs and MSAs; a stage without MSAs is.

    >>> alternates(["Conv", "Conv", "Conv", "MSA"]), alternates(["Conv", "MSA", "MSA"]), alternates(["MSA", "Conv"])
    (True, False, False)
    """
    count = stage.count("MSA")
    return stage == ["Conv"] * (len(stage) - 2 * count) + ["Conv", "MSA"] * count


def property_of(arm: str, name: str, holds: Callable[[Measurement], bool]) -> Effect:
    """Whether the block plan of an arm has a property."""
    return own(Reading(name, ("blocks",), lambda found: float(holds(found))), arm)
