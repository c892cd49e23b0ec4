"""Concentration of attention on few tokens by depth (TAPADL Fig. 1, Sec. 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, reference
from vitlab.reporting.headline import Phrase
from vitlab.reporting.layer_plots import curves, deep_half_finding, known
from vitlab.reporting.panels import panels, share_y_axis
from vitlab.reporting.percent import in_percent

_PAPER = "TAPADL Fig. 1, Sec. 3.1"
_WORDS = ("lower", "higher")
_CLAIM = Phrase("Attention is", ("less concentrated on few tokens", "more concentrated on few tokens"))


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """The share of attention on the most attended tokens, on the most attended token, and the Gini coefficient."""
    figures = []
    tops = [_first_share(measurement) for measurement in measurements]
    if any(known(top, "top") for top in tops):
        figures.append(_top(measurements, tops))
    figures.append(
        _pair(measurements, "top1", "share of all attention, %", "Share of attention on the most attended token")
    )
    figures.append(_pair(measurements, "gini", "Gini coefficient", "Gini coefficient of attention"))
    return figures


def _first_share(measurement: Measurement) -> Measurement:
    """`top` (share, layer, head) at its first share only, and that share as `uniform` (layer)."""
    error = measurement.errors.get("top", "")
    values = {name: np.asarray(measurement.values[name])[0] for name in ("top", error) if name in measurement.values}
    if "top" in values and measurement.axes.get("share"):
        values["uniform"] = np.full(len(values["top"]), float(measurement.axes["share"][0]))
    dims = {name: ("layer", "head")[: value.ndim] for name, value in values.items()}
    errors = {"top": error} if error else {}
    return Measurement(measurement.kind, measurement.subject, values, dims, measurement.axes, errors=errors)


def _top(measurements: Sequence[Measurement], tops: Sequence[Measurement]) -> Figure:
    share = next((float(top.values["uniform"][0]) for top in tops if "uniform" in top.values), 0.0)
    tokens = f"the most attended {100 * share:.3g} % of the tokens" if share else "the most attended tokens"
    plot = curves([in_percent(top, "top") for top in tops], "top", "share of all attention, % (dots: heads)")
    deepest = max(len(top.values.get("uniform", ())) for top in tops)
    if deepest:
        reference(plot, list(range(1, deepest + 1)), np.full(deepest, 100 * share), "uniform attention")
    title = deep_half_finding(measurements, "top", f"Share of attention on {tokens}", words=_WORDS, claim=_CLAIM)
    return Figure(title, _PAPER, plot)


def _pair(measurements: Sequence[Measurement], name: str, y: str, what: str) -> Figure:
    """A value of each head, and of the map averaged over heads as in the paper."""
    plot = panels(["each head (dots) and their mean", "the map averaged over heads"], "layer", y, columns=2)
    both = (name, f"{name}_of_mean")
    drawn = [in_percent(each, *both) for each in measurements] if y.endswith("%") else measurements
    for panel, value in enumerate(both):
        plot = curves(drawn, value, y, plot=plot, panel=panel)
    plot.update_yaxes(rangemode="tozero")
    share_y_axis(plot, (0, 1))
    return Figure(deep_half_finding(measurements, name, what, words=_WORDS, claim=_CLAIM), _PAPER, plot)
