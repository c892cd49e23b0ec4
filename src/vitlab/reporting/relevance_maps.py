"""Figures of token relevance: the maps of some images, and the entropy over depth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure
from vitlab.reporting.layer_plots import curves, deep_half_finding, known
from vitlab.reporting.mosaic import mosaic, tile
from vitlab.reporting.panels import short

_IMAGES = 8  # most images that are drawn


def relevance_figures(measurements: Sequence[Measurement], what: str) -> list[Figure]:
    """The relevance maps of the same images, a row per model; and the entropy of the relevance by layer.

    Args:
        measurements: of `attention_rollout` or `gradient_attention`, one per model.
        what: the name of the relevance in titles.
    """
    maps = [np.asarray(each.values["map"], dtype=float)[:_IMAGES] for each in measurements]
    finite = np.concatenate([values[np.isfinite(values)] for values in maps])
    high = float(np.percentile(finite, 99)) if finite.size else 1.0
    columns = [str(index + 1) for index in range(max(len(values) for values in maps))]
    plot = mosaic([short(each.subject) for each in measurements], columns, "image", "share of relevance", 0, high or 1)
    for row, (measurement, values) in enumerate(zip(measurements, maps, strict=True)):
        for column, one in enumerate(values):
            tile(plot, one, row, column, f"{short(measurement.subject)}, image {column + 1}")
    top = [float(np.mean([one.max() / max(one.sum(), 1e-12) for one in values])) for values in maps]
    parts = [
        f"{100 * share:.1f} % in {measurement.subject}" for share, measurement in zip(top, measurements, strict=True)
    ]
    figures = [Figure(f"Largest share of a token in the {what}: {', '.join(parts)}", "", plot)]
    with_entropy = [each for each in measurements if known(each, "entropy")]
    if with_entropy:
        line = curves(with_entropy, "entropy", "entropy, nats")
        figures.append(Figure(deep_half_finding(with_entropy, "entropy", f"Entropy of the {what}"), "", line))
    return figures
