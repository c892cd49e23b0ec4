"""Shares of images in percent, with their standard errors: what the figures of stress tests are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.judging import Reading
from vitlab.reporting.panels import panels
from vitlab.reporting.readings import mean


def percent(measurement: Measurement, name: str) -> np.ndarray:
    """A share as percent; a NaN where the measurement lacks it."""
    return 100 * np.asarray(measurement.values.get(name, np.nan), dtype=float)


def percent_error(measurement: Measurement, name: str) -> np.ndarray:
    """The standard error of a share as percent; NaN where none is known."""
    missing = np.full(np.shape(measurement.values.get(name, np.nan)), np.nan)
    return 100 * np.asarray(measurement.values.get(measurement.errors.get(name, ""), missing), dtype=float)


def unlike_panels(titles: Sequence[str], x: Sequence[str], y: Sequence[str], *, height: int = 320) -> Any:
    """Panels beside each other that differ in what stands along their axes."""
    plot = panels(titles, "", "", height=height)
    for index, (below, beside) in enumerate(zip(x, y, strict=True)):
        axes = on_panel(index)
        plot.layout[axes["xaxis"].replace("x", "xaxis")].title.text = below
        plot.layout[axes["yaxis"].replace("y", "yaxis")].title.text = beside
    above = {"orientation": "h", "x": 0, "y": 1 + 34 / height, "yanchor": "bottom"}  # clear of the panels' titles
    plot.update_layout(hovermode="x unified", legend=above, margin_t=112)
    plot.update_yaxes(hoverformat=".2f", title_standoff=8)
    plot.update_xaxes(title_standoff=8)
    return plot


def on_panel(index: int) -> dict[str, str]:
    """The axes of a panel, for a trace that goes there."""
    number = "" if index == 0 else str(index + 1)
    return {"xaxis": f"x{number}", "yaxis": f"y{number}"}


def from_zero(plot: Any) -> None:
    """Axes of shares begin at 0, also where the symmetric whisker of a small one would pass it."""
    plot.update_yaxes(rangemode="tozero", minallowed=0, hoverformat=".2f")


def tie(plot: Any, group: Sequence[int]) -> None:
    """Panels get one scale along y: all follow the first, which follows none."""
    for panel in group[1:]:
        plot.layout[on_panel(panel)["yaxis"].replace("y", "yaxis")].matches = on_panel(group[0])["yaxis"]


def only_bars_that_are_there(plot: Any) -> Any:
    """The plot, with no word about 95 % bars along axes whose traces have none."""
    for letter in "xy":
        for axis in plot.select_xaxes() if letter == "x" else plot.select_yaxes():
            own = axis.plotly_name.replace("axis", "")
            traces = [trace for trace in plot.data if (trace[f"{letter}axis"] or letter) == own]
            if axis.title.text and not any(_has_bars(trace[f"error_{letter}"]) for trace in traces):
                axis.title.text = re.sub(r" \(bars:[^)]*\)", "", axis.title.text)
    return plot


def _has_bars(error: Any) -> bool:
    array = None if error is None else error.array
    return array is not None and bool(np.isfinite(np.asarray(array, dtype=float)).any())


def at(name: str, place: Callable[[Measurement], Any]) -> Reading:
    """The reading of one place of a share, or of the mean over some places, in percent.

    Args:
        name: of the share.
        place: gives what indexes the array of a measurement.
    """

    def read(measurement: Measurement) -> tuple[float, float]:
        parts = (part(measurement, name)[place(measurement)] for part in (percent, percent_error))
        value, error = (mean(part) for part in parts)
        return value, error

    return read


def aligned(measurement: Measurement, values: np.ndarray, axes: Mapping[str, Sequence[Any]]) -> np.ndarray:
    """Values with the named axes of a measurement, put onto longer ones: NaN at places that it lacks.

    >>> m = Measurement("k", "a", {"v": np.array([1.0])}, {"v": ("x",)}, {"x": ("fog",)})
    >>> aligned(m, m.values["v"], {"x": ("snow", "fog")}).tolist()
    [nan, 1.0]
    """
    wide = np.full([len(places) for places in axes.values()], np.nan)
    spots = [[list(places).index(place) for place in measurement.axes[name]] for name, places in axes.items()]
    wide[np.ix_(*spots)] = values
    return wide


def union(measurements: Sequence[Measurement], axis: str) -> list[Any]:
    """The places along an axis that any of the measurements has, in the order of first sight."""
    return list(dict.fromkeys(place for measurement in measurements for place in measurement.axes[axis]))


def from_untouched(
    measurement: Measurement, x: Sequence[float], accuracy: np.ndarray, error: np.ndarray, at: float = 0.0
) -> tuple[list[float], np.ndarray, np.ndarray]:
    """A curve in rising order that starts with the accuracy on untouched images.

    Args:
        measurement: holds `clean_accuracy`.
        x: the strengths of a strain.
        accuracy, error: at each of them, in percent.
        at: the strength that leaves images untouched.

    >>> m = Measurement("k", "a", {"clean_accuracy": np.array(0.5)}, {"clean_accuracy": ()})
    >>> from_untouched(m, [2, 1], np.array([10.0, 20.0]), np.zeros(2))[:2]
    ([0.0, 1.0, 2.0], array([50., 20., 10.]))
    """
    places = np.asarray(x, dtype=float)
    if at not in places:
        places = np.append(places, at)
        accuracy = np.append(accuracy, percent(measurement, "clean_accuracy"))
        error = np.append(error, percent_error(measurement, "clean_accuracy"))
    order = np.argsort(places)
    return places[order].tolist(), accuracy[order], error[order]
