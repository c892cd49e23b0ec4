"""High-frequency amplitude of feature maps by depth, and the spectrum at every depth (HDVW Figs. 2a, 8, D.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import SEQUENTIAL, Figure, plain
from vitlab.reporting.headline import Headline, Phrase, describe_number
from vitlab.reporting.panels import on_panel, panels, rounded, share_y_axis
from vitlab.reporting.readings import reading
from vitlab.reporting.residual_stream_plot import along_depth, effects, stream


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Δ log amplitude at the highest frequency before and after every step; and curves over all frequencies."""
    plot = along_depth(measurements, "high", "Δ log amplitude")
    changes = "; ".join(f"{m.subject}: {effects(m, brief=len(measurements) > 2)}" for m in measurements)
    sentence = f"High frequencies (Δ log amplitude at {_highest(measurements)}). {changes}"
    figures = [Figure(replace(_high(measurements), sentence=sentence), "HDVW Figs. 8, D.2", plot)]
    whole = [m for m in measurements if "amplitude" in m.values and "frequency" in m.values]
    return [*figures, _spectra(whole)] if whole else figures


def _high(measurements: Sequence[Measurement]) -> Headline:
    """The result of the amplitude of the highest frequency."""
    what = "Δ log amplitude at the highest frequency, after the last block"
    claim = Phrase("After the last block, high frequencies are", ("weaker", "stronger"))
    return describe_number(what, measurements, reading("high"), claim=claim, name="high")


def _highest(measurements: Sequence[Measurement]) -> str:
    """The highest frequency of the first maps. The released code always calls it 1.0π."""
    found = [np.ravel(np.asarray(m.values["frequency"], float)) for m in measurements if "frequency" in m.values]
    known = [float(frequency) for each in found for frequency in each if np.isfinite(frequency)]
    if found and not known:
        return "an unknown frequency"
    top = max(known, default=1.0)
    return "1.0π" if top > 0.999 else f"{top:.2g}π, the highest here, which the paper calls 1.0π"


def _spectra(measurements: Sequence[Measurement]) -> Figure:
    plot = panels(
        [measurement.subject for measurement in measurements],
        "frequency, π",
        "Δ log amplitude",
        height=320,
        legend=False,
    )
    for panel, measurement in enumerate(measurements):
        _family(plot, measurement, panel)
    _depth_scale(plot)
    share_y_axis(plot, range(len(measurements)))
    return Figure(_high(measurements), "HDVW Figs. 2a, D.2", plot)


def _family(plot: object, measurement: Measurement, panel: int) -> None:
    """A curve after every block, dark at the input and bright at the output."""
    import plotly.graph_objects as go
    from plotly.colors import sample_colorscale

    one = stream(measurement, "high")
    shown = [i for i, label in zip(one.keep, one.labels, strict=True) if label.endswith(" out")] or list(one.keep)
    shown = sorted({one.keep[0], *shown})
    x = np.asarray(measurement.values["frequency"], dtype=float)
    y = rounded(np.asarray(measurement.values["amplitude"], dtype=float), 5)
    for order, i in enumerate(shown):
        tint = sample_colorscale(SEQUENTIAL, order / max(len(shown) - 1, 1))[0]
        kept = np.isfinite(y[i])
        name = plain(f"{measurement.subject}, {measurement.axes['place'][i]}")
        hover = "%{x:.2f}π: %{y:.3f}"
        look = {"mode": "lines+markers" if kept.sum() < 3 else "lines", "line": {"color": tint, "width": 2}}
        curve = go.Scatter(
            x=x[i][kept].tolist(), y=y[i][kept].tolist(), name=name, hovertemplate=hover, showlegend=False
        )
        curve.update(**look, **on_panel(panel))
        plot.add_trace(curve)  # type: ignore[attr-defined]


def _depth_scale(plot: object) -> None:
    """Add the colour scale of depth."""
    import plotly.graph_objects as go

    bar = {"title": {"text": "depth", "side": "right"}, "tickvals": [0, 1], "ticktext": ["input", "output"]}
    mark = {"color": [0, 1], "colorscale": SEQUENTIAL, "cmin": 0, "cmax": 1, "colorbar": {**bar, "thickness": 14}}
    mark |= {"showscale": True, "opacity": 0}
    nothing = go.Scatter(
        x=[None, None], y=[None, None], mode="markers", marker=mark, showlegend=False, hoverinfo="skip"
    )
    plot.add_trace(nothing)  # type: ignore[attr-defined]
