"""Fourier analysis of feature maps before and after every MSA, MLP and Conv (HDVW Figs. 2a, 8, D.2).

    Δ log amplitude(ω) = mean log(|F(ω, ω)| + 10⁻⁶) − mean log(|F(0, 0)| + 10⁻⁶)

F is the Fourier transform of the feature map of one channel and one image; the mean is over channels and images. Only
the half-diagonal is computed, by a matrix product with K waves, which is much cheaper than a full transform.

Shape legend: B batch, N tokens, h w grid, D channels, K frequencies of the half-diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy
from vitlab.core.measurement import Card, Measurement
from vitlab.instruments.shared.one_pass import Result, observe, table
from vitlab.instruments.shared.residual_stream import ResidualStream, changes

CARD = Card(
    title="Relative log amplitude of feature maps by frequency, before and after every MSA, MLP and Conv",
    paper="HDVW Figs. 2a, 8, D.2",
    cost="one forward",
    inputs="images",
    passes="shared",
)

_FLOOR = 1e-6  # added to amplitudes, as in HDVW's released code


def half_diagonal(grid: tuple[int, int], nyquist: bool = False) -> list[tuple[int, int]]:
    """Frequencies on the diagonal from the centre, as (row, column) indices of the transform.

    The released code uses indices below h/2 and labels the last of them 1.0π; on an even grid it is (1 − 2/h)π, and
    `nyquist` adds π itself. If h ≠ w, the shorter side defines the frequencies, and the longer side uses its nearest
    frequency.

    >>> half_diagonal((6, 6)), half_diagonal((6, 6), nyquist=True)[-1], half_diagonal((5, 5))[-1]
    ([(0, 0), (1, 1), (2, 2)], (3, 3), (2, 2))
    >>> half_diagonal((4, 6), nyquist=True)
    [(0, 0), (1, 2), (2, 3)]
    """
    n = min(grid)
    count = n // 2 + 1 if nyquist else (n + 1) // 2
    row, column = ([min((2 * k * side + n) // (2 * n), side // 2) for k in range(count)] for side in grid)
    return list(zip(row, column, strict=True))


def frequencies(grid: tuple[int, int], nyquist: bool = False) -> list[float]:
    """The normalised frequencies of `half_diagonal`, in units of π, along the shorter side.

    >>> frequencies((4, 6), nyquist=True)
    [0.0, 0.5, 1.0]
    """
    return [2 * k / min(grid) for k in range(len(half_diagonal(grid, nyquist)))]


def log_amplitude(maps: Tensor, grid: tuple[int, int], nyquist: bool = False) -> Tensor:
    """Mean log amplitude on the half-diagonal over images and channels; subtract the first for Δ log amplitude.

    Args:
        maps: (B, h·w, D), row by row.
        grid: (h, w).
        nyquist: see `half_diagonal`.

    Returns:
        (K,)

    A wave of frequency π/2 along both axes:

    >>> y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    >>> wave = torch.cos(torch.pi / 2 * (x + y)).reshape(1, 64, 1)
    >>> log_amplitude(wave, (8, 8)).exp().round(decimals=3)  # half of the sum over 64 points
    tensor([ 0.,  0., 32.,  0.])

    Proposition B.1: repeated averaging with a row-stochastic A, as in attention, leaves only the mean:

    >>> maps = torch.randn(2, 64, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
    >>> A = torch.randn(64, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64).softmax(-1)
    >>> once, often = (log_amplitude(torch.matrix_power(A, n) @ maps, (8, 8)) for n in (1, 99))
    >>> bool((often[1:] - often[0] < -15).all()), bool((once[1:] - once[0] > -15).all())
    (True, True)
    """
    waves = _waves(grid, nyquist, maps.dtype, maps.device)
    real, imaginary = torch.bmm(waves.expand(len(maps), -1, -1), maps).chunk(2, 1)
    return (torch.hypot(real, imaginary) + _FLOOR).log().mean((0, 2))


@lru_cache(maxsize=32)
def _waves(grid: tuple[int, int], nyquist: bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Cosines, then sines, of the half-diagonal frequencies at every point: (2K, h·w)."""
    index = torch.tensor(half_diagonal(grid, nyquist))
    turns = [
        (k[:, None] * torch.arange(side) % side).double() / side for k, side in zip(index.unbind(1), grid, strict=True)
    ]
    angle = 2 * math.pi * (turns[0][:, :, None] + turns[1][:, None, :]).flatten(1)
    return torch.cat((angle.cos(), -angle.sin())).to(device, dtype)


class Accumulator(ResidualStream):
    """Averages log amplitudes at every tap of the residual stream."""

    kind = "feature_fourier"

    def __init__(self, nyquist: bool = False) -> None:
        self._nyquist = nyquist
        self.settings = {"nyquist": nyquist}

    def summary(self, maps: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, h·w, D) -> (K,)."""
        return log_amplitude(maps, grid, self._nyquist)

    def result(self, anatomy: Anatomy) -> Result:
        """Log amplitudes relative to frequency 0."""
        rows = [row - row[0] for row in self.means()]
        high = np.array([float(row[-1]) if len(row) > 1 else math.nan for row in rows])
        steps = list(self.steps())
        grids = self.grids()
        values = {
            "amplitude": table(rows),
            "frequency": table([np.array(frequencies((int(h), int(w)), self._nyquist)) for h, w in grids]),
            "high": high,
            "change": changes(high, steps),
            "grid": grids,
        }
        dims: dict[str, tuple[str, ...]] = {
            "amplitude": ("place", "index"),
            "frequency": ("place", "index"),
            "high": ("place",),
            "change": ("step",),
            "grid": ("place", "side"),
        }
        axes = {"place": self.labels(), "step": tuple(name for name, _, _ in steps), "side": ("h", "w")}
        return Result(values, dims, axes)


def measure(model: nn.Module, batches: Iterable[Any], *, nyquist: bool = False) -> Measurement:
    """Δ log amplitude of the residual stream before and after every MSA, MLP and Conv.

    Prefix tokens are dropped. Every map is analysed on its own grid without interpolation. If grids differ, shorter
    rows are padded with NaN; `frequency` contains the frequency of each value.

    Args:
        model: any model with taps; it runs in evaluation mode.
        batches: yields (images, targets) or images.
        nyquist: end at π, as in the paper's text, instead of at the last frequency below it, as in the released code
            (0.857π on a 14×14 grid, labelled 1.0π there). On odd grids both are the same.

    Returns:
        `amplitude` (place, index), Δ log amplitude; `frequency` (place, index), in units of π; `high` (place), at the
        highest frequency (1.0π in the figures; NaN if frequency 0 is the only one, on 2×2 maps without `nyquist`);
        `change` (step), the difference of `high` after and before each MSA, MLP or Conv; `grid` (place, side).
        Places are named like `blocks.0 in`, `blocks.0 mid`, `blocks.0 out`, steps like `blocks.0 MSA`.
    """
    return observe(model, batches, [Accumulator(nyquist)])[0]
