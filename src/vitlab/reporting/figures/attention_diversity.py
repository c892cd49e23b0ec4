"""Similarity of attention heads and rows, pairs of heads, and locality of heads (TAPADL Fig. 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import NORMAL
from vitlab.reporting.drawing import Figure
from vitlab.reporting.findings import with_error
from vitlab.reporting.headline import Headline, Phrase, Samples, describe_number
from vitlab.reporting.layer_plots import curves, deep_half_finding, known
from vitlab.reporting.mosaic import mosaic, tile
from vitlab.reporting.panels import panels, short
from vitlab.reporting.percent import in_percent

_PAPER = "TAPADL Fig. 4, Sec. 4.1.2"
_LOCAL = Phrase("Local heads are", ("fewer", "more numerous"))
_ROWS = Phrase("Queries attend", ("less alike", "more alike"))
_MOST = 12  # the maximum number of layers whose matrices are shown


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Similarity of heads and of rows by layer; a matrix of heads for each layer; mass near the diagonal."""
    figures = []
    if any(known(measurement, "head_similarity") for measurement in measurements):
        plot = curves(measurements, "head_similarity", "cosine similarity of two heads")
        words = ("less alike", "more alike")
        finding = deep_half_finding(
            measurements, "head_similarity", "Similarity of heads", words=words, claim=Phrase("Heads attend", words)
        )
        figures.append(Figure(finding, _PAPER, plot))
    paired = [measurement for measurement in measurements if known(measurement, "head_pairs")]
    figures += [_pairs(paired)] if paired else []
    if any(known(measurement, "row_similarity") for measurement in measurements):
        plot = curves(measurements, "row_similarity", "cosine to the mean over queries (dots: heads)")
        finding = deep_half_finding(
            measurements,
            "row_similarity",
            "Similarity of the attention of a query to the mean over queries",
            claim=_ROWS,
        )
        figures.append(Figure(finding, "TAPADL Eq. 2", plot))
    if any(known(measurement, "neighbourhood_mass") for measurement in measurements):
        figures.append(_local(measurements))
    return figures


def _pairs(measurements: Sequence[Measurement]) -> Figure:
    """A matrix of heads for each model and layer."""
    depth = max(len(measurement.values["head_pairs"]) for measurement in measurements)
    layers = sorted({round(i) for i in np.linspace(0, depth - 1, min(depth, _MOST))})
    subjects = [short(measurement.subject) for measurement in measurements]
    x = "layer (in each square: head by head)"
    plot = mosaic(subjects, [str(layer + 1) for layer in layers], x, "cosine similarity", 0, 1)
    for row, measurement in enumerate(measurements):
        pairs = np.asarray(measurement.values["head_pairs"], dtype=float)
        for column, layer in enumerate(layers):
            if layer < len(pairs) and np.isfinite(pairs[layer]).any():
                _matrix(plot, pairs[layer], row, column, f"{measurement.subject}, layer {layer + 1}")
    return Figure(_most_similar(measurements), _PAPER, plot)


def _matrix(plot: object, pairs: np.ndarray, row: int, column: int, name: str) -> None:
    heads = int(np.isfinite(pairs.diagonal()).sum())
    text = [[f"heads {i + 1} and {j + 1}" for j in range(heads)] for i in range(heads)]
    tile(plot, pairs[:heads, :heads], row, column, name, text)


def _most_similar(measurements: Sequence[Measurement]) -> str | Headline:
    best = (-np.inf, 0, 0, 0, "", np.nan)
    for measurement in measurements:
        pairs = np.array(measurement.values["head_pairs"], dtype=float)
        pairs[:, ~np.triu(np.ones(pairs.shape[1:], dtype=bool), 1)] = np.nan
        if np.isfinite(pairs).any():
            layer, i, j = (int(place) for place in np.unravel_index(int(np.nanargmax(pairs)), pairs.shape))
            error = measurement.values.get(measurement.errors.get("head_pairs", ""))
            half = np.nan if error is None else NORMAL * float(error[layer, i, j])
            best = max(best, (float(pairs[layer, i, j]), layer, i, j, measurement.subject, half))
    value, layer, i, j, subject, half = best
    if not subject:
        return "Each layer has one head: there are no pairs of heads"
    where = f"{i + 1} and {j + 1} in layer {layer + 1} of {subject}"
    sentence = f"The two most similar heads: {where}, similarity {with_error(value, half, '.3f')}"
    return Headline(sentence, f"The two most similar heads: {where}")


def _local(measurements: Sequence[Measurement]) -> Figure:
    titles = ["on the token itself", "on the 3×3 tokens around it"]
    plot = panels(titles, "layer", "share of attention, % (dots: heads)", columns=2)
    names = ("self_mass", "neighbourhood_mass")
    for panel, name in enumerate(names):
        curves([in_percent(each, *names) for each in measurements], name, "", plot=plot, panel=panel)
    plot.update_yaxes(rangemode="tozero")
    heads = Samples("heads", _head_count)
    what = "Local heads (over half of their attention on the nearest 3×3 tokens)"
    return Figure(
        describe_number(what, measurements, _local_heads, "%", claim=_LOCAL, samples=heads), "TAPADL Fig. 4", plot
    )


def _head_count(measurement: Measurement) -> int:
    return int(np.isfinite(np.asarray(measurement.values.get("neighbourhood_mass", np.nan), dtype=float)).sum())


def _local_heads(measurement: Measurement) -> tuple[float, float]:
    """The share of heads with more than half of their attention in the 3×3 neighbourhood, in percent."""
    mass = np.asarray(measurement.values.get("neighbourhood_mass", np.nan), dtype=float)
    heads = _head_count(measurement)
    return (100 * float((mass > 0.5).sum()) / heads if heads else np.nan), np.nan
