"""Decisions by shape and by texture on conflicting cues, and the shape bias (Geirhos et al., ICLR 2019)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, bars, labels, remove_unused_bar_notes
from vitlab.reporting.headline import Headline, Phrase, describe_number
from vitlab.reporting.panels import on_panel, panels_with_own_axes
from vitlab.reporting.percent import percent, percent_error
from vitlab.reporting.readings import reading


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """The shares of the four kinds of decision, and the shape bias: the share by shape of those by one cue only."""
    titles = ["decision follows", "shape bias"]
    plot = panels_with_own_axes(titles, ["", ""], ["share of scenes, % (bars: 95 %)", "shape bias, % (bars: 95 %)"])
    plot.update_layout(xaxis_domain=[0, 0.66], xaxis2_domain=[0.78, 1])
    plot.layout.annotations[0].x, plot.layout.annotations[1].x = 0.33, 0.89
    for index, measurement in enumerate(measurements):
        share, error = percent(measurement, "share"), percent_error(measurement, "share")
        group = {"legendgroup": str(index)}
        bars(plot, labels(measurement, "share"), share, measurement.subject, index, error=error, **group)
        bias, bias_error = percent(measurement, "shape_bias"), percent_error(measurement, "shape_bias")
        place = {**group, "showlegend": False, **on_panel(1)}
        bars(plot, [""], [float(bias)], measurement.subject, index, error=[float(bias_error)], **place)
    plot.update_yaxes(range=[0, 100])
    return [Figure(_finding(measurements), "", remove_unused_bar_notes(plot))]


def _finding(measurements: Sequence[Measurement]) -> Headline:
    what = "Shape bias where shape and texture conflict"
    claim = Phrase("Where shape and texture conflict, shape decides", ("less often", "more often"))
    return describe_number(what, measurements, reading("shape_bias", 100), "%", claim=claim, name="shape_bias")
