"""Accuracy with the patches of each image in random order: the dependence on global structure.

Shape legend: B batch, C channels, h w pixels, g cells along each side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from vitlab.core.bounds import ImageCount, Length, Range, Seed
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.corruptions.randomness import Randomness
from vitlab.stress_tests.shared.pixel_evaluation import (
    Perturbation,
    PixelBatch,
    accuracies,
    evaluate_perturbations,
    numbers,
    result,
)

CARD = Card(
    title="Accuracy with shuffled patches",
    paper="Naseer et al., Intriguing Properties of Vision Transformers, NeurIPS 2021",
    cost="1 + grids forwards, 4 by default",
    inputs="labelled images",
    passes="several",
    higher_is_better=True,
)

#: Patches along each side.
Grid = Annotated[int, Range(1, 1024)]


def shuffle(images: Tensor, order: Tensor) -> Tensor:
    """Split images into g × g cells and permute the cells.

    Args:
        images: (B, C, h, w), h and w multiples of g.
        order: (B, g²), the source cell of each position, row by row.

    >>> shuffle(torch.arange(4.0).view(1, 1, 2, 2), torch.tensor([[3, 2, 1, 0]]))
    tensor([[[[3., 2.],
              [1., 0.]]]])
    """
    b, c, h, w = images.shape
    grid = round(order.shape[1] ** 0.5)  # exact: g² cells
    if h % grid or w % grid:
        raise VitlabError(f"invalid grids={grid} for {h}x{w} images; expected divisors of both sides")
    # b c (g p) (g q) -> b (g g) c p q
    cells = images.view(b, c, grid, h // grid, grid, w // grid).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    moved = cells[torch.arange(b, device=images.device)[:, None], order]
    return moved.view(b, grid, grid, c, h // grid, w // grid).permute(0, 3, 1, 4, 2, 5).reshape(b, c, h, w)


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    grids: Grid | Annotated[Sequence[Grid], Length(1, 100, distinct=True)] = (2, 4, 8),
    seed: Seed = 0,
    images: ImageCount | None = None,
) -> Measurement:
    """Measure the accuracy with g × g patches of each image in random order.

    Args:
        model: a classifier; its state is restored on exit.
        batches: yields (images, targets), in the same order in each iteration; iterated once per condition.
        grids: patches along each side, g; each must divide the sides of the images.
        seed: seed of the orders, combined with the grid and the index of the image.
        images: number of images, from the start; default all.

    Returns:
        `accuracy`, `standard_error`, `drop`, `drop_error` (grid), `clean_accuracy`, `clean_error` ().
    """
    grids = numbers(grids)
    perturbations = [(f"{grid} x {grid} patches", _perturbation(grid, seed)) for grid in grids]
    outcome = evaluate_perturbations(model, batches, "patch_shuffle", perturbations, images)
    settings = {"grids": grids, "seed": seed, "images": images}
    return result("patch_shuffle", model, accuracies(outcome), {"grid": grids}, settings, outcome.about)


def _perturbation(grid: int, seed: int) -> Perturbation:
    def perturbation(batch: PixelBatch) -> Tensor:
        draws = Randomness.of(seed, "patch_shuffle", grid, batch.indices, batch.pixels.device).uniform(grid * grid)
        return shuffle(batch.pixels, draws.argsort(dim=1, stable=True))

    return perturbation
