"""Entropy by depth with its bound and percentiles (CB Fig. 4), relative to the bound, and of the class token (7a)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure
from vitlab.reporting.headline import Phrase
from vitlab.reporting.layer_plots import bounds, curves, deep_half_finding, known
from vitlab.reporting.percent import in_percent

_RELATIVE = "CB Fig. 4, there in nats"
_EVEN = Phrase("Attention is", ("more focused", "more even"))
_POOLED = ("pooled_p15", "pooled_p85")


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Entropy by layer with its 15th and 85th percentile and log N; by head; and of the class token's row.

    The band of CB Fig. 4 is over all rows and heads of a layer. Measurements of earlier versions have percentiles per
    head only, whose mean over heads is narrower.
    """
    pooled = all(known(measurement, tail) for measurement in measurements for tail in _POOLED)
    over = "over all heads" if pooled else "mean over heads"
    y = f"entropy, nats<br>(15th to 85th percentile,<br>{over})"
    plot = curves(measurements, "mean", y, heads=False, tails=_POOLED if pooled else ("p15", "p85"))
    bounds(plot, measurements, "bound", "log N, uniform attention")
    figures = [
        Figure(deep_half_finding(measurements, "mean", "Attention entropy", "nats", claim=_EVEN), "CB Fig. 4", plot)
    ]
    of_class = Phrase("The class token's attention is", _EVEN.words)
    for name, what, y, paper, claim in (
        ("normalised", "Entropy relative to its bound", "entropy / log N, % (dots: heads)", _RELATIVE, _EVEN),
        ("class_row", "Entropy of the class token's attention", "entropy, nats (dots: heads)", "CB Fig. 7a", of_class),
    ):
        if any(known(measurement, name) for measurement in measurements):
            unit = "nats" if "nats" in y else ""
            finding = deep_half_finding(measurements, name, what, unit, claim=claim)
            drawn = [in_percent(each, name) for each in measurements] if "%" in y else measurements
            figures.append(Figure(finding, paper, curves(drawn, name, y)))
    return figures
