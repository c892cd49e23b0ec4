"""Variance of feature map points before and after every MSA, MLP and Conv (HDVW Figs. 9, D.1).

    mean over images and channels of Var_{h,w}(x), unbiased

Shape legend: B batch, N tokens, h w grid, D channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy
from vitlab.core.measurement import Card, Measurement
from vitlab.instruments.shared.one_pass import Result, observe
from vitlab.instruments.shared.residual_stream import ResidualStream, changes

CARD = Card(
    title="Variance of feature map points, before and after every MSA, MLP and Conv",
    paper="HDVW Figs. 9, D.1",
    cost="one forward",
    inputs="images",
    passes="shared",
)


def spatial_variance(maps: Tensor) -> Tensor:
    """Variance over points (unbiased, divided by N − 1), averaged over images and channels.

    Args:
        maps: (B, N, D), N > 1.

    Returns:
        ()

    >>> import torch
    >>> spatial_variance(torch.tensor([[[0.0, 5.0], [2.0, 5.0]]]))  # 2 in one channel, 0 in the other
    tensor(1.)
    """
    if maps.is_cuda:
        return maps.var(1).mean()
    # On a CPU, torch.var over an inner axis takes 16 times as long. Two passes are accurate, unlike E[x²] − E[x]².
    centred = maps - maps.mean(1, keepdim=True)
    return centred.square().mean() * (maps.shape[1] / (maps.shape[1] - 1))


class Accumulator(ResidualStream):
    """Averages the variance at every tap of the residual stream."""

    kind = "feature_variance"

    def summary(self, maps: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, h·w, D) -> (1,)."""
        return spatial_variance(maps)[None]

    def result(self, anatomy: Anatomy) -> Result:
        """Variance at every tap, and its change in each step."""
        variance = np.concatenate(self.means())
        steps = list(self.steps())
        values = {"variance": variance, "change": changes(variance, steps), "grid": self.grids()}
        axes = {"place": self.labels(), "step": tuple(name for name, _, _ in steps), "side": ("h", "w")}
        return Result(values, {"variance": ("place",), "change": ("step",), "grid": ("place", "side")}, axes)


def measure(model: nn.Module, batches: Iterable[Any]) -> Measurement:
    """Variance over the points of every feature map of the residual stream, without prefix tokens.

    Args:
        model: any model with taps; it runs in evaluation mode.
        batches: yields (images, targets) or images. HDVW uses one batch of the test set.

    Returns:
        `variance` (place); `change` (step), the difference after and before each MSA, MLP or Conv; `grid` (place,
        side). Places are named like `blocks.0 in`, `blocks.0 mid`, `blocks.0 out`, steps like `blocks.0 MSA`. Maps
        with one point have no variance and are skipped.
    """
    return observe(model, batches, [Accumulator()])[0]
