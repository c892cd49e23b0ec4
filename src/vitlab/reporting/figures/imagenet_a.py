"""Accuracy on ImageNet-A as bars (CB Table 8; TAPADL Table 2)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.accuracy_bars import TWO_HUNDRED, accuracy_bars
from vitlab.reporting.drawing import Figure


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Accuracy of each model by both definitions."""
    return accuracy_bars(measurements, "ImageNet-A", "CB Table 8; TAPADL Table 2", TWO_HUNDRED)
