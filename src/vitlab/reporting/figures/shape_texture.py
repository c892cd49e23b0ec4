"""Decisions by shape and by texture where the two conflict, and the shape bias (Geirhos et al., ICLR 2019)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, bars, labels
from vitlab.reporting.judging import told
from vitlab.reporting.percent import on_panel, only_bars_that_are_there, percent, percent_error, unlike_panels
from vitlab.reporting.readings import reading


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """The shares of the four kinds of decision, and of those by one cue alone the share by shape."""
    titles = ["decision follows", "shape bias"]
    plot = unlike_panels(titles, ["", ""], ["share of scenes, % (bars: 95 %)", "shape bias, % (bars: 95 %)"])
    plot.update_layout(xaxis_domain=[0, 0.66], xaxis2_domain=[0.78, 1])
    plot.layout.annotations[0].x, plot.layout.annotations[1].x = 0.33, 0.89
    for index, measurement in enumerate(measurements):
        share, error = percent(measurement, "share"), percent_error(measurement, "share")
        group = {"legendgroup": str(index)}
        bars(plot, labels(measurement, "share"), share, measurement.subject, index, error=error, **group)
        bias, doubt = percent(measurement, "shape_bias"), percent_error(measurement, "shape_bias")
        place = {**group, "showlegend": False, **on_panel(1)}
        bars(plot, [""], [float(bias)], measurement.subject, index, error=[float(doubt)], **place)
    plot.update_yaxes(range=[0, 100])
    return [Figure(_finding(measurements), "", only_bars_that_are_there(plot))]


def _finding(measurements: Sequence[Measurement]) -> str:
    return told("Shape bias where shape and texture conflict", measurements, reading("shape_bias", 100), "%")
