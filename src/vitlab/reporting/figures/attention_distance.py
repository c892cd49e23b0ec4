"""How far tokens attend, by depth: the paper's mean over pairs (CB Fig. 7b), and how far a query looks (ours)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure
from vitlab.reporting.layer_plots import bounds, curves, deep_half_finding, known

_WORDS = ("nearer", "farther")


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """The distance of each model by layer, heads as dots, beside that of uniform attention."""
    pairs = curves(
        measurements, "distance", "mean of a<sub>ij</sub> ‖p<sub>i</sub> - p<sub>j</sub>‖₁, image sides", heads=False
    )
    said = deep_half_finding(measurements, "distance", "Attention distance over all pairs", "sides", words=_WORDS)
    figures = [Figure(said, "CB Fig. 7b", pairs)]
    if any(known(measurement, "attended") for measurement in measurements):
        looks = curves(measurements, "attended", "distance, image sides (dots: heads)")
        bounds(looks, measurements, "uniform", "uniform attention")
        said = deep_half_finding(measurements, "attended", "How far a query looks", "sides", words=_WORDS)
        figures.append(Figure(said, "after CB Fig. 7b", looks))
    return figures
