"""Random numbers that are a pure function of (seed, corruption, severity, image index, stream, position).

No generator has a state here, so batch size, order and threads cannot change a bit, and every device draws the same
integers. A 64-bit SplitMix key for each image seeds a 32-bit hash of the position: int32 arithmetic is what both
AVX and CUDA do fastest.

Shape legend: B images, n numbers of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN_64, _GOLDEN_32 = 0x9E3779B97F4A7C15, 0x9E3779B9
_STEPS = 32  # of the inversion of Poisson's distribution: P(X > 32) is 2e-7 at the largest rate that it serves
_LARGE_RATE = 12.0


@dataclass(frozen=True)
class Randomness:
    """One stream of random numbers for each image of a batch, by its key.

    Args:
        keys: (B,) uint64.
        device: where the numbers are made.

    >>> both = Randomness.of(0, "fog", 1, [4, 7]).uniform(3)
    >>> bool((Randomness.of(0, "fog", 1, [7]).uniform(3) == both[1:]).all())
    True
    """

    keys: NDArray[np.uint64]
    device: torch.device | str = "cpu"

    @classmethod
    def of(
        cls, seed: int, name: str, severity: int, indices: Sequence[int], device: torch.device | str = "cpu"
    ) -> Randomness:
        """The randomness of images `indices` under a corruption: SplitMix64, chained over the four parts of the key.

        Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
        """
        key = np.zeros(1, dtype=np.uint64)
        for part in (seed % 2**64, crc32(name.encode()), severity):
            key = _mix_64(key + np.uint64(part))
        return cls(_mix_64(key + np.asarray([i % 2**64 for i in indices], dtype=np.uint64)), device)

    def __len__(self) -> int:
        """How many images, B."""
        return len(self.keys)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Randomness:
        """The randomness of some of the images."""
        return Randomness(self.keys[rows], self.device)

    def bits(self, *shape: int, stream: int = 0) -> Tensor:
        """(B, *shape) int32, all 32 bits random: a multiply-xorshift hash of the position, keyed by 64 bits."""
        keys = _mix_64(self.keys + np.uint64((stream + 1) * _GOLDEN_64 % 2**64))
        low, high = torch.from_numpy(keys.view(np.int32).reshape(-1, 2).copy()).to(self.device).unbind(1)
        position = torch.arange(prod(shape), dtype=torch.int32, device=self.device).mul_(_signed(_GOLDEN_32))
        x = position + low[:, None]
        scratch = torch.empty_like(x)
        _fold(x, 16, scratch).mul_(0x7FEB352D).add_(high[:, None])
        _fold(x, 15, scratch).mul_(_signed(0x846CA68B))
        return _fold(x, 16, scratch).reshape(len(self), *shape)

    def uniform(self, *shape: int, stream: int = 0, low: float = 0.0, high: float = 1.0) -> Tensor:
        """(B, *shape) float32 in the open interval (low, high): the middles of 2^24 equal cells."""
        cells = self.bits(*shape, stream=stream).bitwise_right_shift_(8).float()
        return cells.mul_((high - low) * 2.0**-24).add_((low + high) / 2 + (high - low) * 2.0**-25)

    def normal(self, *shape: int, stream: int = 0) -> Tensor:
        """(B, *shape) float32 of N(0, 1), by inversion: √2 · erf⁻¹(2u − 1), cut at ±5.4."""
        return standard_normal(self.uniform(*shape, stream=stream))


def standard_normal(uniform: Tensor) -> Tensor:
    """The quantile of N(0, 1) at each number of (0, 1); works in place.

    >>> standard_normal(torch.tensor([0.5, 0.975])).tolist()
    [0.0, 1.9599...]
    """
    return uniform.mul_(2).sub_(1).erfinv_().mul_(sqrt(2))


def poisson(rate: Tensor, uniform: Tensor, most: int) -> Tensor:
    """The quantile of Poisson's distribution at each number of (0, 1), counted no further than `most`.

    Up to a rate of 12 by inversion, exactly: X = #{k : Σ_{j≤k} e^{−λ} λ^j / j! < u}. Above it by the Cornish-Fisher
    expansion to third order, X = ⌊λ + √λ z + (z² − 1)/6 + (z − z³)/(72 √λ) + ½⌋ with z = Φ⁻¹(u), whose distribution
    function is off by less than 0.001 there.

    Args:
        rate: λ ≥ 0, any shape. uniform: the same shape, in (0, 1). most: the count at which larger ones are cut.

    >>> poisson(torch.full((3,), 1.0), torch.tensor([0.3, 0.5, 0.999]), most=100)
    tensor([0., 1., 5.])
    """
    term = torch.exp(-rate)
    below, count = term.clone(), torch.zeros_like(rate)
    for k in range(1, min(most, _STEPS) + 1):
        count += uniform > below
        below += term.mul_(rate).mul_(1 / k)
    if most <= _LARGE_RATE:
        return count
    root, z = rate.clamp(min=1.0).sqrt_(), standard_normal(uniform.clone())
    square = z * z
    quantile = root * z + rate + (square - 1) / 6 + z * (1 - square) / (72 * root)
    return torch.where(rate > _LARGE_RATE, quantile.add_(0.5).floor_().clamp_(0, most), count)


def _fold(x: Tensor, shift: int, scratch: Tensor) -> Tensor:
    """x ^= x >>> shift, in place. int32 shifts copy the sign: the mask makes the shift logical."""
    torch.bitwise_right_shift(x, shift, out=scratch)
    return x.bitwise_xor_(scratch.bitwise_and_((1 << (32 - shift)) - 1))


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def _mix_64(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + np.uint64(_GOLDEN_64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
