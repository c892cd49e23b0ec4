"""Error by corruption and severity as a table, and by corruption as bars with mCE (TAPADL Table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import NORMAL
from vitlab.reporting.differences import same_conditions
from vitlab.reporting.drawing import SEQUENTIAL, Figure, bars, empty_plot, plain, remove_unused_bar_notes, start_at_zero
from vitlab.reporting.findings import UNKNOWN, with_error
from vitlab.reporting.headline import Headline, Phrase, describe_number
from vitlab.reporting.panels import on_panel, panels
from vitlab.reporting.percent import aligned, percent, percent_error, union
from vitlab.reporting.readings import reading
from vitlab.reporting.sections import images_missing

#: The tables and figures of the papers, by kind.
_PAPERS = {"cifar_c": "HDVW Fig. 12b", "imagenet_c": "TAPADL Tables 2 and 3; HDVW Fig. E.1"}


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """A table of errors for each model, then CE by corruption, or the mean error without a baseline."""
    paper = _PAPERS.get(measurements[0].kind, "TAPADL Tables 2 and 3; HDVW Figs. 12b and E.1")
    return [
        Figure(_mean_finding(measurements), paper, _table(measurements)),
        Figure(_total_finding(measurements), paper, _by_corruption(measurements)),
    ]


def _table(measurements: Sequence[Measurement]) -> Any:
    """Errors in percent, one panel per model, on a common colour scale from 0 to 100."""
    import plotly.graph_objects as go

    axes = {"corruption": union(measurements, "corruption"), "severity": sorted(union(measurements, "severity"))}
    rows = [_words(name) for name in axes["corruption"]]
    plot = panels([measurement.subject for measurement in measurements], "severity", "", height=40 + 24 * len(rows))
    for panel, measurement in enumerate(measurements):
        z = aligned(measurement, percent(measurement, "error"), axes).tolist()
        cell = {"texttemplate": "%{z:.0f}", "hovertemplate": "%{y}, severity %{x}: %{z:.2f} %", "hoverongaps": False}
        cell |= {"coloraxis": "coloraxis", "name": plain(measurement.subject), **on_panel(panel)}
        plot.add_trace(go.Heatmap(z=z, x=axes["severity"], y=rows, **cell))
    bar = {"title": {"text": "error, %", "side": "right"}, "thickness": 14}
    plot.update_layout(coloraxis={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": 100, "colorbar": bar})
    plot.update_yaxes(autorange="reversed", tickfont_size=12, showticklabels=False)  # the first corruption on top
    plot.update_yaxes(showticklabels=True, col=1)
    plot.update_xaxes(type="category")
    return plot


def _by_corruption(measurements: Sequence[Measurement]) -> Any:
    against = _has_baseline(measurements)
    y = "CE, %" if against else "mean error, %"
    plot = empty_plot("", f"{y}<br>(bars: 95 %)")  # the slanted names of corruptions leave little height
    for index, measurement in enumerate(measurements):
        names, heights, errors = _heights(measurement, against)
        bars(plot, names, heights, measurement.subject, index, error=errors)
    start_at_zero(plot)
    plot.update_xaxes(tickangle=-40)
    return remove_unused_bar_notes(plot)


def _heights(measurement: Measurement, against: bool) -> tuple[list[str], list[float], list[float]]:
    """Names, percentages and standard errors of the bars: the mean, then each corruption."""
    names = [_words(name) for name in measurement.axes["corruption"]]
    if against:
        heights, errors = percent(measurement, "ce"), percent_error(measurement, "ce")
        total, error = float(percent(measurement, "mce")), float(percent_error(measurement, "mce"))
    else:  # the same images at each severity: the mean of the errors is an upper bound of the error of the mean
        heights, errors = percent(measurement, "error").mean(1), percent_error(measurement, "error").mean(1)
        total, error = mean_error(measurement)
    return ["mCE" if against else "mean", *names], [total, *heights.tolist()], [error, *errors.tolist()]


def _mean_finding(measurements: Sequence[Measurement]) -> Headline:
    title = "Mean error over corruptions and severities"
    if all(same_conditions(measurements[0], other) for other in measurements[1:]):
        found = describe_number(title, measurements, mean_error, "%", claim=Phrase("The error under corruptions is"))
        return replace(found, sentence=f"{found.sentence}{_subset(measurements)}")
    single = [describe_number(each.subject, [each], mean_error, "%").sentence for each in measurements]
    claim = "Not comparable: the models were measured under different corruptions"
    title = f"{title}, not comparable (different corruptions or severities)"
    return Headline(f"{title}: {', '.join(single)}{_subset(measurements)}", claim)


def _subset(measurements: Sequence[Measurement]) -> str:
    """The number of images, if the benchmark has more."""
    missing = {each.provenance.get("images", 0): images_missing(each) for each in measurements}
    less = [text for _, text in sorted(missing.items()) if text]
    return f"; on {', and on '.join(less)}" if less else ""


def _total_finding(measurements: Sequence[Measurement]) -> str | Headline:
    """mCE if known, else the corruptions with the highest and lowest error, in the unit of the bars."""
    against = _has_baseline(measurements)
    if against and any(np.isfinite(percent(measurement, "mce")) for measurement in measurements):
        return describe_number("mCE", measurements, reading("mce", 100), "%", name="mce")
    hardest = "; ".join(_hardest(measurement, against) for measurement in measurements)
    return f"{'CE, error relative to the reference model' if against else 'Mean error by corruption'}: {hardest}"


def _hardest(measurement: Measurement, against: bool) -> str:
    _, heights, standard_errors = _heights(measurement, against)
    errors, halves = np.array(heights[1:], dtype=float), NORMAL * np.array(standard_errors[1:], dtype=float)
    if not np.isfinite(errors).any():
        return f"{measurement.subject}: errors not known"
    worst, best = (int(which(errors)) for which in (np.nanargmax, np.nanargmin))
    name, least = (_words(measurement.axes["corruption"][index]) for index in (worst, best))
    noise = "" if np.isfinite(halves[[worst, best]]).any() else f"; {UNKNOWN}"
    most, fewest = (f"{with_error(errors[at], halves[at], '.1f', noisy=False)} %" for at in (worst, best))
    return f"{measurement.subject} highest under {name} ({most}), lowest under {least} ({fewest}){noise}"


def mean_error(measurement: Measurement) -> tuple[float, float]:
    """Mean error in percent and its standard error."""
    if "mean_accuracy" in measurement.values:
        return reading("mean_accuracy", -100, 100)(measurement)
    errors = percent(measurement, "error")
    return (float(np.nanmean(errors)) if np.isfinite(errors).any() else np.nan), np.nan


def _has_baseline(measurements: Sequence[Measurement]) -> bool:
    """Whether CE is known for all models: bars of CE and of errors are not comparable."""
    return all(bool(np.isfinite(percent(measurement, "ce")).any()) for measurement in measurements)


def _words(name: Any) -> str:
    return plain(str(name).replace("_", " "))
