"""The Jacobian of softmax is largest at uniform attention: the closed form (CB Fig. 5), and rows of the models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, empty_plot, heat_map, labels, line, reference
from vitlab.reporting.headline import Headline, Phrase, describe_number
from vitlab.reporting.layer_plots import bounds, curves, deep_half_finding, known
from vitlab.reporting.panels import on_panel, panels, rounded
from vitlab.reporting.readings import mean, reading

_PAPER = "CB Fig. 5"
_SIZES = ("smaller", "larger")


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """The norm over the plane of two inputs; by entropy of rows; and by layer."""
    figures = [_plane(measurement) for measurement in measurements[:1] if known(measurement, "plane_norm")]
    if any(known(measurement, "by_entropy") for measurement in measurements):
        figures.append(_by_entropy(measurements))
    if any(known(measurement, "mean") for measurement in measurements):
        plot = curves(measurements, "mean", "nuclear norm, λ = 1 (dots: heads)")
        bounds(plot, measurements, "bound", "1 - 1/N, uniform attention")
        what = "Norm of the softmax Jacobian at the models' attention"
        title = deep_half_finding(measurements, "mean", what, claim=Phrase("The softmax Jacobian is", _SIZES))
        figures.append(Figure(title, "CB Sec. 3.1", plot))
    return figures


def _plane(measurement: Measurement) -> Figure:
    """Both closed forms, at no more than 64 points along a side."""
    plot = panels(
        ["first output of softmax", "nuclear norm of its Jacobian"], "x₂", "x₁", columns=2, height=320, legend=False
    )
    norm = np.asarray(measurement.values["plane_norm"], dtype=float)
    every = -(-len(norm) // 64)
    x = labels(measurement, "plane_norm")[::every]
    for panel, name in enumerate(("plane_softmax", "plane_norm")):
        z = np.asarray(measurement.values[name], dtype=float)[::every, ::every]
        bar = {"x": (0.445, 1.02)[panel], "thickness": 12}
        hover = "x₁ %{y:.2f}, x₂ %{x:.2f}: %{z:.3f}"
        heat_map(plot, rounded(z), x, x, hovertemplate=hover, name=name.removeprefix("plane_"), colorbar=bar)
        plot.data[-1].update(on_panel(panel))
    equal, far = mean(norm.diagonal()), mean((norm[0, -1], norm[-1, 0]))
    apart = abs(x[-1] - x[0])
    where = f"{equal:.3g} where they are equal, {far:.2g} where they differ by {apart:.3g}"
    sentence = f"Softmax of two numbers: the norm of its Jacobian is {where}"
    return Figure(Headline(sentence, "The Jacobian of softmax is largest where its inputs are equal"), _PAPER, plot)


def _by_entropy(measurements: Sequence[Measurement]) -> Figure:
    plot = empty_plot("entropy of a row / log N", "nuclear norm, λ = 1 (mean over layers)")
    for index, measurement in enumerate(measurements):
        if known(measurement, "by_entropy"):
            found = np.asarray(measurement.values["by_entropy"], dtype=float)
            x = labels(measurement, "by_entropy", 1)
            line(plot, x, [mean(column) for column in found.T], measurement.subject, index, hovertemplate="%{y:.4g}")
    longest = max(measurements, key=lambda m: float(np.max(m.values.get("curve_entropy", 0.0))))
    if known(longest, "curve_entropy"):
        dense = np.asarray(longest.values["curve_entropy"], dtype=float)
        reference(plot, (dense / dense.max()).tolist(), longest.values["curve_norm"], "one key and N - 1 equal ones")
    plot.update_layout(xaxis_range=[0, 1.02], yaxis_rangemode="tozero", hovermode="closest")
    what = "Correlation of a row's entropy with the norm of the softmax Jacobian"
    return Figure(describe_number(what, measurements, reading("correlation"), name="correlation"), "CB Sec. 3.1", plot)
