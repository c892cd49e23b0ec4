"""Accuracy with patches dropped at random, and with the centre hidden (CB Table 8)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, line
from vitlab.reporting.judging import told
from vitlab.reporting.percent import (
    at,
    from_untouched,
    from_zero,
    on_panel,
    only_bars_that_are_there,
    percent,
    percent_error,
    unlike_panels,
)

_WAYS = {
    "patches": ("patches dropped at random", "share of patches dropped"),
    "centre": ("centre hidden", "share of each side hidden"),
}


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """A panel for each way of hiding, the untouched images at 0."""
    ways = [way for way in _WAYS if any(_shares(measurement, way) for measurement in measurements)]
    titles, below = zip(*(_WAYS[way] for way in ways), strict=True)
    plot = unlike_panels(titles, below, ["accuracy, % (bars: 95 %)"] * len(ways))
    for panel, way in enumerate(ways):
        for index, measurement in enumerate(measurements):
            shares = _shares(measurement, way)
            spots = list(shares.values())
            y, error = (part(measurement, "accuracy")[spots] for part in (percent, percent_error))
            x, y, error = from_untouched(measurement, list(shares), y, error)
            group = {"legendgroup": str(index), "showlegend": panel == 0, "cliponaxis": False, **on_panel(panel)}
            line(plot, x, y, measurement.subject, index, error=error, **group)
    from_zero(plot)
    plot.update_xaxes(range=[-0.03, 1.03])
    return [Figure(_finding(measurements), "CB Table 8 (centre)", only_bars_that_are_there(plot))]


def _shares(measurement: Measurement, way: str) -> dict[float, int]:
    """The share that each mask of one way hides, and where it stands in the measurement: `patches 0.3` hides 0.3."""
    words = [str(mask).split() for mask in measurement.axes["mask"]]
    return {float(share): place for place, (name, share) in enumerate(words) if name == way}


def _finding(measurements: Sequence[Measurement]) -> str:
    """Accuracy behind the first mask that all models share; the centre's comes first."""
    first = measurements[0].axes["mask"]
    shared = [mask for mask in first if all(mask in measurement.axes["mask"] for measurement in measurements)]
    if not shared:
        return "The models looked through different masks: their accuracies do not compare"
    way, share = str(shared[0]).split()
    hit = at("accuracy", lambda m: m.axes["mask"].index(shared[0]))
    hidden = f"the middle {share} of each side hidden" if way == "centre" else f"{share} of the patches dropped"
    return told(f"Accuracy with {hidden}", measurements, hit, "%")
