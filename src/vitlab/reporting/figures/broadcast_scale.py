"""The learned weights of scaled context broadcasting by depth: ratio of quantiles, and average (CB Fig. 8)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, by_layer
from vitlab.reporting.layer_plots import curves, known
from vitlab.reporting.panels import panels
from vitlab.reporting.readings import mean

_TITLES = {
    "ratio": "ratio |λ₀.₁| / |λ₀.₉|",
    "mean": "average of λ",
    "mean_absolute": "average of |λ|",
}


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """A panel for the ratio and one for each average: the paper does not specify the sign of its average."""
    names = [name for name in _TITLES if any(known(measurement, name) for measurement in measurements)]
    if not names:
        return []
    plot = panels([_TITLES[name] for name in names], "layer", "no unit", columns=3)
    for panel, name in enumerate(names):
        curves(measurements, name, "", plot=plot, panel=panel)
    plot.update_yaxes(rangemode="tozero")
    trends = [
        f"{m.subject}: {_trend(m, 'ratio', 'ratio')}, {_trend(m, 'mean_absolute', 'average |λ|')}" for m in measurements
    ]
    return [Figure("With depth, in " + "; ".join(trends), "CB Fig. 8", plot)]


def _trend(measurement: Measurement, name: str, what: str) -> str:
    """The change from the first half of the layers to the second."""
    if not known(measurement, name):
        return f"{what} not known"
    layers = by_layer(measurement, name)
    lower, upper = mean(layers[: len(layers) // 2]), mean(layers[len(layers) // 2 :])
    before, after = f"{lower:.3g}", f"{upper:.3g}"
    if len(layers) < 2 or "nan" in (before, after):
        return f"{what} {mean(layers):.3g}"
    if before == after:
        return f"the {what} stays at {after}"
    return f"the {what} {'rises' if upper > lower else 'falls'} from {before} to {after}"
