"""Properties of block plans: 1.0 where a plan has them, else 0.0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.experiments.how_vits_work._effects import Effect, Reading, own

__all__ = ["alternates", "depths_of", "property_of", "stages_of"]


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
