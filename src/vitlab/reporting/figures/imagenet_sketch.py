"""Accuracy on ImageNet-Sketch as bars."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.accuracy_bars import accuracy_bars
from vitlab.reporting.drawing import Figure

_DEFINITIONS = {"accuracy": "drawings"}


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Accuracy of each model."""
    return accuracy_bars(measurements, "ImageNet-Sketch", "", _DEFINITIONS)
