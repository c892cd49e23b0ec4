"""Negative and positive Hessian eigenvalues as in HDVW Figs. 1c and 4, with NEP and APE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import NORMAL
from vitlab.reporting.differences import number
from vitlab.reporting.drawing import Figure, bars, line, remove_unused_bar_notes
from vitlab.reporting.headline import Phrase, Samples, describe_number
from vitlab.reporting.panels import on_panel, panels_with_own_axes
from vitlab.reporting.readings import reading

#: NEP in percent and APE.
_NEP, _APE = reading("negative_proportion", 100), reading("positive_average")


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """The spectrum in two panels, one per sign, then NEP and APE."""
    of, convex, flat = _of(measurements), ("more convex", "less convex"), ("flatter", "sharper")
    eigenvalues = Samples("eigenvalues", lambda measurement: len(_pool(measurement)))
    share = describe_number(
        f"Negative eigenvalues (NEP) {of}",
        measurements,
        _NEP,
        "%",
        name="negative_proportion",
        claim=Phrase("The loss is", convex),
        samples=eigenvalues,
    )
    mean = describe_number(
        f"Mean positive eigenvalue (APE) {of}",
        measurements,
        _APE,
        name="positive_average",
        claim=Phrase("The loss is", flat),
    )
    return [
        Figure(share, "HDVW Figs. 1c and 4", _spectrum(measurements)),
        Figure(mean, "HDVW Figs. C.5 and C.6", _summary(measurements)),
    ]


def _of(measurements: Sequence[Measurement]) -> str:
    """The measured part of the spectrum: the eigenvalues with the largest |λ| of each mini-batch."""
    shapes = [np.shape(measurement.values["eigenvalues"]) for measurement in measurements]
    batches, counts = (sorted({shape[side] for shape in shapes}) for side in (0, 1))
    few, many = (" to ".join(map(str, sorted({each[0], each[-1]}))) for each in (counts, batches))
    return f"among the {few} largest by |λ|, {many} mini-batch{'' if many == '1' else 'es'}"


def _spectrum(measurements: Sequence[Measurement]) -> Any:
    """Outlines of histograms: the shares of a model's eigenvalues in bins common to all models.

    The left panel of a model sums to its NEP, both panels to 100 %. Eigenvalues span decades, so bins are equal on a
    logarithmic axis of |λ|; the left axis is reversed and its labels have a minus sign.
    """
    below, share = "eigenvalue λ, logarithmic", "eigenvalues, % per bin"
    plot = panels_with_own_axes(["negative", "positive"], [below, below], [share, ""])
    pools = [_pool(measurement) for measurement in measurements]
    bins = int(np.clip(np.sqrt(max(map(len, pools))), 8, 30))
    empty: list[int] = []
    for panel, negative in enumerate((True, False)):
        sides = [np.abs(pool[(pool < 0) == negative]) for pool in pools]
        edges = _edges(np.concatenate(sides), bins)
        for index, (measurement, side, pool) in enumerate(zip(measurements, sides, pools, strict=True)):
            counts = np.histogram(side.clip(edges[0], edges[-1]), edges)[0]
            x, y = _outline(edges, 100 * counts / max(len(pool), 1))
            group = {"legendgroup": str(index), "showlegend": panel == 0, **on_panel(panel)}
            line(plot, x, y, measurement.subject, index, mode="lines", **group, line={"shape": "hvh"})
        ticks = _ticks(edges)
        texts = [f"{'−' if negative else ''}{tick:g}" for tick in ticks]
        plot.update_xaxes(tickvals=ticks, ticktext=texts, col=panel + 1)
        if not any(len(side) for side in sides):
            middle = {"x": 0.5, "y": 0.5, "xref": "x domain", "yref": "y domain", "showarrow": False}
            plot.add_annotation(text="none", row=1, col=panel + 1, **middle)
            empty.append(panel + 1)
    plot.update_xaxes(type="log", hoverformat=".3g")
    plot.update_xaxes(autorange="reversed", tickprefix="−", col=1)
    plot.update_yaxes(rangemode="tozero")
    for column in empty:  # without eigenvalues there is no scale
        plot.update_xaxes(showticklabels=False, showgrid=False, col=column)
        plot.update_yaxes(showticklabels=False, showgrid=False, col=column)
    return plot


def _edges(sizes: np.ndarray, bins: int) -> np.ndarray:
    """Geometric bin edges over at most six decades; smaller values count in the first bin."""
    high = float(sizes.max(initial=0.0)) or 1.0
    known = sizes[sizes > 1e-6 * high]
    low = float(known.min(initial=high))
    return np.geomspace(low / 1.05, high * 1.05, bins + 1)


def _ticks(edges: np.ndarray) -> list[float]:
    """Powers of ten, with 3, or 2 and 5, between them if they are few; both edges if fewer than two remain."""
    decades = np.log10(edges[-1] / edges[0])
    digits = (1,) if decades > 4 else (1, 3) if decades > 1.5 else (1, 2, 5)
    powers = range(int(np.floor(np.log10(edges[0]))), int(np.ceil(np.log10(edges[-1]))) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in digits]
    inside = [tick for tick in ticks if edges[0] <= tick <= edges[-1]]
    return [float(f"{tick:.3g}") for tick in (inside if len(inside) > 1 else (edges[0], edges[-1]))]


def _outline(edges: np.ndarray, height: np.ndarray) -> tuple[list[float], list[float]]:
    """Middles of the bins and heights, with an empty bin at both ends to close the outline."""
    factor = edges[1] / edges[0]
    middles = edges[:-1] * np.sqrt(factor)
    return [middles[0] / factor, *middles, middles[-1] * factor], [0.0, *height, 0.0]


def _summary(measurements: Sequence[Measurement]) -> Any:
    titles = ["NEP, share of negative eigenvalues", "APE, mean of the positive ones"]
    plot = panels_with_own_axes(titles, ["", ""], ["NEP, % (bars: 95 %)", "APE (bars: 95 %)"])
    for index, measurement in enumerate(measurements):
        for panel, one in enumerate((number(measurement, _NEP), number(measurement, _APE))):
            group = {"legendgroup": str(index), "showlegend": panel == 0, **on_panel(panel)}
            bars(plot, [""], [one.value], measurement.subject, index, error=[one.half_width / NORMAL], **group)
    plot.update_yaxes(rangemode="tozero", hoverformat=".4g")
    return remove_unused_bar_notes(plot)


def _pool(measurement: Measurement) -> np.ndarray:
    values = np.asarray(measurement.values["eigenvalues"], dtype=float).ravel()
    pool: np.ndarray = values[np.isfinite(values)]
    return pool
