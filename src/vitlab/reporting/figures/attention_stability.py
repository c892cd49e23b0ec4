"""Similarity of attention on clean and corrupted images: the distribution over all heads, and by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import NORMAL
from vitlab.reporting.drawing import Figure, band, empty_plot, heat_map, labels, line, plain
from vitlab.reporting.findings import with_error
from vitlab.reporting.headline import Headline, Phrase, describe_number
from vitlab.reporting.layer_plots import curves, deep_half_finding, error_by_layer, known
from vitlab.reporting.panels import on_panel, panels, rounded
from vitlab.reporting.readings import mean, reading

_PAPER = "TAPADL Figs. 1, 5"
_STABLE = Phrase("Attention under corruption is", ("less stable", "more stable"))
_SIMILARITY = "cosine similarity of clean and corrupted attention"


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """The distribution over images, layers and heads; means by layer; and a distribution for each layer."""
    figures = [_overall(measurements)]
    if any(known(measurement, "mean") for measurement in measurements):
        plot = curves(measurements, "mean", "cosine similarity (dots: heads)")
        figures.append(
            Figure(
                deep_half_finding(
                    measurements, "mean", "Similarity of attention on clean and corrupted images", claim=_STABLE
                ),
                _PAPER,
                plot,
            )
        )
    layered = [measurement for measurement in measurements if known(measurement, "histogram")]
    return [*figures, _by_layer(layered)] if layered else figures


def _overall(measurements: Sequence[Measurement]) -> Figure:
    plot = empty_plot(_SIMILARITY, "share of maps in a bin, %")
    for index, measurement in enumerate(measurements):
        if known(measurement, "distribution"):
            x = labels(measurement, "distribution")
            share = 100 * np.asarray(measurement.values["distribution"], dtype=float)
            band(plot, x, np.zeros(len(x)), np.nan_to_num(share), index)
            own = measurement.errors.get("distribution", "")
            error = 100 * measurement.values[own] if known(measurement, own) else None
            line(plot, x, share, measurement.subject, index, error=error, mode="lines", hovertemplate="%{y:.2f} %")
    plot.update_layout(xaxis_range=[_lowest(measurements, "distribution"), 1], yaxis_rangemode="tozero")
    return Figure(_finding(measurements), _PAPER, plot)


def _finding(measurements: Sequence[Measurement]) -> Headline:
    corruption = str(measurements[0].settings.get("corruption") or "corruption").replace("_", " ")
    words = _STABLE.words
    what = f"Similarity of attention under {corruption}"
    claim = Phrase(f"Attention under {corruption} is", words)
    return describe_number(what, measurements, reading("overall"), words=words, claim=claim, name="overall")


def _by_layer(measurements: Sequence[Measurement]) -> Figure:
    plot = panels(
        [measurement.subject for measurement in measurements], "cosine similarity", "layer", height=300, legend=False
    )
    tables = [_shares(measurement) for measurement in measurements]
    top = max(float(np.nanmax(table)) for table in tables)
    for panel, (measurement, table) in enumerate(zip(measurements, tables, strict=True)):
        x, y = labels(measurement, "histogram", 2), labels(measurement, "histogram")
        look: dict[str, Any] = {
            "zmin": 0,
            "zmax": top,
            "colorbar": {"title": {"text": "% of maps", "side": "right"}, "thickness": 14},
        }
        hover = "layer %{y}, similarity %{x:.2f}: %{z:.2f} %"
        heat_map(plot, rounded(table), x, y, panel=0, hovertemplate=hover, name=plain(measurement.subject), **look)
        plot.data[-1].update(**on_panel(panel), showscale=panel == 0)
    plot.update_xaxes(range=[_lowest(measurements, "histogram"), 1])
    lows = [_least_stable(measurement, table) for measurement, table in zip(measurements, tables, strict=True)]
    least = min(lows, key=lambda low: low[0])
    value = f"mean similarity {with_error(least[0], least[3], '.3f')}"
    claim = f"Attention is least stable in layer {least[1]} of {least[2]}"
    return Figure(Headline(f"{claim}: {value}", claim), _PAPER, plot)


def _lowest(measurements: Sequence[Measurement], name: str) -> float:
    """The similarity below which every bin of every model has less than 0.2 %: most maps are near 1."""
    lows = [1.0]
    for measurement in (measurement for measurement in measurements if known(measurement, name)):
        centres = np.array(measurement.axes["similarity"], dtype=float)
        shares = np.nan_to_num(np.asarray(measurement.values[name], dtype=float)).reshape(-1, len(centres)).max(0)
        lows += [float(centre) for centre in centres[shares > 2e-3][:1]]
    return max(0.0, min(lows) - 0.05)


def _shares(measurement: Measurement) -> np.ndarray:
    """Shares of maps in percent, (layer, similarity): the mean over the heads of a layer."""
    histogram = np.asarray(measurement.values["histogram"], dtype=float)
    heads = np.isfinite(histogram).all(2).sum(1)[:, None]
    shares: np.ndarray = 100 * np.nansum(histogram, 1) / np.where(heads, heads, np.nan)
    return shares


def _least_stable(measurement: Measurement, table: np.ndarray) -> tuple[float, int, str, float]:
    """The lowest mean similarity of a layer, that layer, the model, and half the 95 % interval."""
    centres = np.array(labels(measurement, "histogram", 2), dtype=float)
    means = (table * centres).sum(1) / table.sum(1)
    if known(measurement, "mean"):
        means = np.array([mean(row) for row in np.asarray(measurement.values["mean"], dtype=float)])
    layer = int(np.nanargmin(means))
    errors = error_by_layer(measurement, "mean")
    half = float("nan") if errors is None else NORMAL * float(errors[layer])
    return float(means[layer]), layer + 1, measurement.subject, half
