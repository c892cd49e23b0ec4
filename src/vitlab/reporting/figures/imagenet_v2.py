"""Accuracy on ImageNet-V2 as bars (CB Table 5)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.accuracy_bars import accuracy_bars
from vitlab.reporting.drawing import Figure

_DEFINITIONS = {"accuracy": "all"}


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Accuracy of each model, by set."""
    return accuracy_bars(measurements, "ImageNetV2", "CB Table 5", _DEFINITIONS)
