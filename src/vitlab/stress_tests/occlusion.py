"""Accuracy with part of the image masked: the centre, or random patches.

Shape legend: B batch, C channels, h w pixels, p q cells along the sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.adapters.wrappers import unwrap
from vitlab.core.bounds import ImageCount, Length, Range, Seed, Share
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.corruptions.randomness import Randomness
from vitlab.stress_tests.shared.pixel_evaluation import (
    Perturbation,
    PixelBatch,
    accuracies,
    evaluate_perturbations,
    normalisation,
    numbers,
    result,
)

CARD = Card(
    title="Accuracy under a centre mask and under dropped patches",
    paper="CB Table 8 (centre mask); Naseer et al., NeurIPS 2021 (patch drop)",
    cost="1 + masks + ratios forwards, 7 by default",
    inputs="labelled images",
    passes="several",
    higher_is_better=True,
)

Fill = Literal["zero", "black"]

_GRID = (14, 14)


def _memory(cells: int) -> str:
    return f"a grid of {cells:,} x {cells:,} needs about {16 * cells**2 / 1e9:,.1f} GB for each image of a batch"


Cells = Annotated[int, Range(1, 1024, cost=_memory)]


def centre_mask(size: tuple[int, int], share: float) -> Tensor:
    """Returns (h, w) bool: a central rectangle with `share` of each side, for example 112 × 112 of 224 × 224 at 0.5.

    >>> centre_mask((4, 6), 0.5).int()
    tensor([[0, 0, 0, 0, 0, 0],
            [0, 1, 1, 1, 0, 0],
            [0, 1, 1, 1, 0, 0],
            [0, 0, 0, 0, 0, 0]], dtype=torch.int32)
    """
    mask = torch.zeros(size, dtype=torch.bool)
    (top, height), (left, width) = (((side - round(side * share)) // 2, round(side * share)) for side in size)
    mask[top : top + height, left : left + width] = True
    return mask


def drop_mask(draws: Tensor, ratio: float, size: tuple[int, int]) -> Tensor:
    """Returns a mask of the round(ratio · p · q) cells with the lowest draws. A larger ratio gives a superset.

    Args:
        draws: (B, p, q), one number per cell; ties are resolved by order.
        ratio: the fraction of cells to drop.
        size: (h, w). The sizes of cells differ by at most a pixel if p and q do not divide h and w.

    Returns:
        (B, h, w) bool, True where dropped.

    >>> drop_mask(torch.tensor([[[0.1, 0.9], [0.2, 0.3]]]), 0.5, (2, 4)).int()
    tensor([[[1, 1, 0, 0],
             [1, 1, 0, 0]]], dtype=torch.int32)
    """
    grid = draws.shape[1:]
    ranks = draws.flatten(1).argsort(dim=1, stable=True).argsort(1).view_as(draws)
    dropped = ranks < round(ratio * grid.numel())
    rows, columns = (torch.arange(side, device=draws.device) * g // side for g, side in zip(grid, size, strict=True))
    return dropped[:, rows[:, None], columns]


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    centres: Share | Annotated[Sequence[Share], Length(0, 1000, distinct=True)] = (0.5,),
    ratios: Share | Annotated[Sequence[Share], Length(0, 1000, distinct=True)] = (0.1, 0.3, 0.5, 0.7, 0.9),
    grid: Cells | tuple[Cells, Cells] | None = None,
    fill: Fill = "zero",
    seed: Seed = 0,
    images: ImageCount | None = None,
) -> Measurement:
    """Measure the accuracy with the centre masked, and with random patches dropped.

    Args:
        model: a classifier; its state is restored on exit.
        batches: yields (images, targets), in the same order in each iteration; iterated once per condition.
        centres: fractions of each side that the centre mask covers; 0.5 is CB Table 8.
        ratios: fractions of the patches to drop.
        grid: patches along each side, or (rows, columns). Default: the grid of the model's first block, for example 14
            for patches of 16 × 16 at 224 × 224; 14 for models of unknown families. To compare models with different
            grids, set the grid.
        fill: `zero`, zeros after normalisation, which is the mean colour; or `black`, zeros before normalisation.
        seed: seed of the dropped patches, combined with the index of the image.
        images: number of images, from the start; default all.

    Returns:
        `accuracy`, `standard_error`, `drop`, `drop_error` (mask), `clean_accuracy`, `clean_error` (). Masks are named
        `centre 0.5` or `patches 0.3`. Settings contain the grid that was used.
    """
    centres, ratios = numbers(centres), numbers(ratios)
    shares, cells = (*centres, *ratios), _cells(model, grid)
    if not shares:
        raise VitlabError("invalid centres=() and ratios=() for occlusion; expected at least one fraction")
    mean, _ = normalisation(unwrap(model), batches, "occlusion")
    colour = torch.tensor(mean if fill == "zero" else [0.0]).view(-1, 1, 1)
    perturbations = [(f"centre {share}", _centre(share, colour)) for share in centres]
    perturbations += [(f"patches {ratio}", _patches(ratio, cells, seed, colour)) for ratio in ratios]
    outcome = evaluate_perturbations(model, batches, "occlusion", perturbations, images)
    axes = {"mask": [f"centre {share:g}" for share in centres] + [f"patches {ratio:g}" for ratio in ratios]}
    settings: dict[str, Any] = {"centres": centres, "ratios": ratios, "grid": cells, "fill": fill}
    settings |= {"seed": seed, "images": images}
    return result("occlusion", model, accuracies(outcome), axes, settings, outcome.about)


def _cells(model: nn.Module, grid: Any) -> tuple[int, int]:
    """Returns rows and columns of the patches: `grid`, else those of the model's first block."""
    if grid is not None:
        rows, columns = grid if isinstance(grid, (tuple, list)) else (grid, grid)
        return int(rows), int(columns)
    try:
        first = describe(unwrap(model)).blocks[0]
    except VitlabError:  # unknown family
        return _GRID
    place = next(iter(first.seams + first.taps), None)
    layout = place.layout if place else first.mixer.queries
    return layout.grid if layout else _GRID


def _centre(share: float, colour: Tensor) -> Perturbation:
    def perturbation(batch: PixelBatch) -> Tensor:
        mask = centre_mask((batch.pixels.shape[2], batch.pixels.shape[3]), share)
        return torch.where(mask.to(batch.pixels.device), colour.to(batch.pixels.device), batch.pixels)

    return perturbation


def _patches(ratio: float, cells: tuple[int, int], seed: int, colour: Tensor) -> Perturbation:
    def perturbation(batch: PixelBatch) -> Tensor:
        draws = Randomness.of(seed, "patch_drop", 0, batch.indices, batch.pixels.device).uniform(*cells)
        mask = drop_mask(draws, ratio, (batch.pixels.shape[2], batch.pixels.shape[3]))
        return torch.where(mask[:, None], colour.to(batch.pixels.device), batch.pixels)

    return perturbation
