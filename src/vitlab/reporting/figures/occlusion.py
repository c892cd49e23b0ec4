"""Accuracy with patches dropped at random, and with the centre hidden (CB Table 8)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, line, remove_unused_bar_notes, start_at_zero
from vitlab.reporting.headline import Headline, Phrase, Samples, describe_number
from vitlab.reporting.panels import on_panel, panels_with_own_axes
from vitlab.reporting.percent import at, from_clean, percent, percent_error

_MASKS = {
    "patches": ("patches dropped at random", "patches dropped, %"),
    "centre": ("centre hidden", "hidden part of each side, %"),
}


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """A panel for each kind of mask; clean images are at 0."""
    kinds = [kind for kind in _MASKS if any(_shares(measurement, kind) for measurement in measurements)]
    titles, below = zip(*(_MASKS[kind] for kind in kinds), strict=True)
    plot = panels_with_own_axes(titles, below, ["accuracy, % (bars: 95 %)"] * len(kinds))
    for panel, kind in enumerate(kinds):
        for index, measurement in enumerate(measurements):
            shares = _shares(measurement, kind)
            indices = list(shares.values())
            y, error = (part(measurement, "accuracy")[indices] for part in (percent, percent_error))
            x, y, error = from_clean(measurement, [100 * share for share in shares], y, error)
            group = {"legendgroup": str(index), "showlegend": panel == 0, "cliponaxis": False, **on_panel(panel)}
            line(plot, x, y, measurement.subject, index, error=error, **group)
    start_at_zero(plot)
    plot.update_xaxes(range=[-3, 103])
    return [Figure(_finding(measurements), "CB Table 8 (centre)", remove_unused_bar_notes(plot))]


def _shares(measurement: Measurement, kind: str) -> dict[float, int]:
    """The hidden share of each mask of one kind and its index in the measurement: `patches 0.3` hides 0.3."""
    words = [str(mask).split() for mask in measurement.axes["mask"]]
    return {float(share): place for place, (name, share) in enumerate(words) if name == kind}


def _finding(measurements: Sequence[Measurement]) -> str | Headline:
    """Accuracy with the first mask that all models have; masks of the centre come first."""
    first = measurements[0].axes["mask"]
    shared = [mask for mask in first if all(mask in measurement.axes["mask"] for measurement in measurements)]
    if not shared:
        return "The models were measured with different masks: their accuracies are not comparable"
    kind, share = str(shared[0]).split()
    accuracy = at("accuracy", lambda m: m.axes["mask"].index(shared[0]))
    size = f"{100 * float(share):g} %"
    hidden = f"the central {size} of each side hidden" if kind == "centre" else f"{size} of the patches dropped"
    claim = Phrase(f"Accuracy {'with a hidden centre' if kind == 'centre' else 'without some patches'} is")
    return describe_number(f"Accuracy with {hidden}", measurements, accuracy, "%", claim=claim, samples=Samples())
