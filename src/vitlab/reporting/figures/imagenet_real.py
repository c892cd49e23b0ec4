"""Accuracy on ImageNet-ReaL as bars (CB Table 5)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.accuracy_bars import accuracy_bars
from vitlab.reporting.drawing import Figure

_DEFINITIONS = {"accuracy": "by the reassessed labels", "original_accuracy": "by ImageNet's own labels"}


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Accuracy of each model."""
    return accuracy_bars(measurements, "ImageNet-ReaL", "CB Table 5", _DEFINITIONS)
