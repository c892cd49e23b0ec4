"""Attention distance by depth: the attended distance per query (ours), and the mean over pairs of CB Fig. 7b."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure
from vitlab.reporting.headline import Phrase
from vitlab.reporting.layer_plots import bounds, curves, deep_half_finding, known

_WORDS = ("nearer", "farther")
_CLAIM = Phrase("Attention reaches", ("less far", "farther"))


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """The distance of each model by layer, heads as dots, and that of uniform attention."""
    figures = []
    if any(known(measurement, "attended") for measurement in measurements):  # a distance in the image; the mean is not
        plot = curves(measurements, "attended", "city-block distance, image sides (dots: heads)")
        bounds(plot, measurements, "uniform", "uniform attention")
        title = deep_half_finding(
            measurements, "attended", "Attended distance per query", "image sides", words=_WORDS, claim=_CLAIM
        )
        figures.append(Figure(title, "CB Fig. 7b, there the mean over all pairs", plot))
    pairs = curves(
        measurements, "distance", "mean of a<sub>ij</sub> ‖p<sub>i</sub> - p<sub>j</sub>‖₁, image sides", heads=False
    )
    title = deep_half_finding(
        measurements,
        "distance",
        "Mean of attention × distance over all pairs",
        "image sides",
        words=_WORDS,
        claim=_CLAIM,
    )
    return [*figures, Figure(title, "CB Fig. 7b", pairs)]
