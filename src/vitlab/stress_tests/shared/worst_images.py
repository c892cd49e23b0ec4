"""Thumbnails of the images that a classifier gets wrong under each corruption.

Shape legend: n images, N corruptions, S severities, R ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from vitlab.core.measurement import Measurement
from vitlab.data.thumbnails import thumbnails
from vitlab.stress_tests.shared.pixel_evaluation import Outcome, Perturbation, PixelBatch

#: The number of images per corruption, and the maximum side of their thumbnails in pixels.
RANKS, SIDE = 3, 48

#: Names and axes of the values; `pooling` leaves them out of numbers.
DIMS: dict[str, tuple[str, ...]] = {
    "example": ("corruption", "rank", "row", "column", "channel"),
    "example_index": ("corruption", "rank"),
    "example_severity": ("corruption", "rank"),
}
POOLING = dict.fromkeys(DIMS, ("examples",))


def choose(correct: np.ndarray, clean: np.ndarray, ranks: int = RANKS) -> tuple[np.ndarray, np.ndarray]:
    """The images that are wrong at most severities, those that are correct without corruption first.

    Args:
        correct: (N, S, n), severities in increasing order.
        clean: (n,).
        ranks: R.

    Returns:
        The positions of the images and the lowest severity at which each is wrong, as its position; both (N, R), −1
        where fewer images are wrong.

    >>> places, severities = choose(np.array([[[1, 0, 1], [0, 0, 1]]]), np.array([1, 0, 1]), 2)
    >>> places.tolist(), severities.tolist()
    ([[0, 1]], [[1, 0]])
    """
    wrong = np.asarray(correct) < 0.5
    rank = wrong.sum(1) + wrong.shape[1] * (np.asarray(clean) > 0.5) * wrong.any(1)  # (N, n)
    order = np.argsort(-rank, axis=1, kind="stable")[:, :ranks]
    order = np.pad(order, ((0, 0), (0, ranks - order.shape[1])))
    first = np.take_along_axis(wrong.argmax(1), order, 1)
    known = np.take_along_axis(wrong.any(1), order, 1) & (np.arange(ranks) < wrong.shape[2])
    return np.where(known, order, -1), np.where(known, first, -1)


def with_worst_images(
    measurement: Measurement,
    outcome: Outcome,
    correct: np.ndarray,
    severities: Sequence[int],
    perturbations: Sequence[Sequence[Perturbation]],
) -> Measurement:
    """The measurement with thumbnails of the worst images of each corruption, at the lowest severity with an error.

    Args:
        measurement: has the axis `corruption`.
        outcome: has the clean images.
        correct: (N, S, n).
        severities: S, in increasing order.
        perturbations: N × S.

    Returns:
        The measurement with `example` (N, R, h, w, 3) uint8, `example_index` (N, R), −1 where fewer images are wrong,
        and `example_severity` (N, R), 0 there.
    """
    places, levels = choose(correct, outcome.clean)
    found: dict[tuple[int, int], np.ndarray] = {}
    shape: tuple[int, ...] = (1, 1, 3)
    for batch in outcome.pixels():
        first = batch.indices[0]
        shape = thumbnails(batch.pixels[:1], SIDE).shape[1:]
        for row, column in zip(*np.nonzero((places >= first) & (places <= batch.indices[-1])), strict=True):
            at = int(places[row, column]) - first
            one = PixelBatch(batch.pixels[at : at + 1], batch.labels[at : at + 1], [first + at], batch.classify)
            with torch.no_grad():
                changed = perturbations[row][levels[row, column]](one)
            found[int(row), int(column)] = thumbnails(changed, SIDE)[0]
    example = np.zeros((*places.shape, *shape), dtype=np.uint8)
    for place, picture in found.items():
        example[place] = picture
    severity = np.where(levels >= 0, np.asarray(severities)[levels], 0)
    pictures = {"example": example, "example_index": places, "example_severity": severity}
    return replace(
        measurement,
        values={**measurement.values, **pictures},
        dims={**measurement.dims, **DIMS},
        pooling={**measurement.pooling, **POOLING},
    )
