"""Random numbers that are a pure function of (seed, corruption, severity, image index, stream, position).

The generator has no state, so the numbers are bitwise independent of batch size, order, threads and device. A 64-bit
SplitMix key per image seeds a 32-bit hash of the position: int32 arithmetic is fastest on both AVX and CUDA.

Shape legend: B images, n numbers per image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitlab.corruptions.validation import integer

_GOLDEN_64, _GOLDEN_32 = 0x9E3779B97F4A7C15, 0x9E3779B9


@dataclass(frozen=True)
class Randomness:
    """Streams of random numbers for each image of a batch.

    Args:
        keys: (B,) uint64, one key per image.
        device: the device of the numbers.

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
        """Returns the randomness of some images under a corruption: SplitMix64, chained over the four parts of the key.

        Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
        """
        key = np.zeros(1, dtype=np.uint64)
        for part in (integer("seed", seed) % 2**64, crc32(name.encode()), severity):
            key = _mix_64(key + np.uint64(part))
        positions = [integer("index", i) % 2**64 for i in indices]
        return cls(_mix_64(key + np.asarray(positions, dtype=np.uint64)), device)

    def __len__(self) -> int:
        """The number of images, B."""
        return len(self.keys)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Randomness:
        """The randomness of some of the images."""
        return Randomness(self.keys[rows], self.device)

    def bits(self, *shape: int, stream: int = 0) -> Tensor:
        """Returns (B, *shape) int32 with 32 random bits: a multiply-xorshift hash of the position, keyed by 64 bits."""
        keys = _mix_64(self.keys + np.uint64((stream + 1) * _GOLDEN_64 % 2**64))
        low, high = _send(keys.view(np.int32).reshape(-1, 2).copy(), self.device).unbind(1)
        x = _positions(prod(shape), str(self.device)) + low[:, None]
        scratch = torch.empty_like(x)
        _fold(x, 16, scratch).mul_(0x7FEB352D).add_(high[:, None])
        _fold(x, 15, scratch).mul_(_signed(0x846CA68B))
        return _fold(x, 16, scratch).view(len(self), *shape)

    def halves(self, *shape: int, stream: int = 0) -> Tensor:
        """Returns (B, *shape) int32 with 16 random bits, −32768 … 32767: two per hash, at half the cost."""
        count = prod(shape)
        pairs = self.bits((count + 1) // 2, stream=stream).view(torch.int16)
        return pairs[:, :count].int().view(len(self), *shape)

    def uniform(self, *shape: int, stream: int = 0, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Returns (B, *shape) float32 in the open interval (low, high): the midpoints of 2^24 equal cells."""
        cells = self.bits(*shape, stream=stream).bitwise_right_shift_(8).float()
        return cells.mul_((high - low) * 2.0**-24).add_((low + high) / 2 + (high - low) * 2.0**-25)

    def normal(self, *shape: int, stream: int = 0, mean: float = 0.0, deviation: float = 1.0) -> Tensor:
        """Returns (B, *shape) float32 of N(mean, deviation²), from a table of quantiles at the midpoints of 2^16 cells.

        A lookup costs a third of erf⁻¹ and is bitwise equal on all devices. The tails end at ±4.3 deviations.
        """
        cells = self.halves(*shape, stream=stream).add_(1 << 15)
        table = _normal_table(str(self.device)) * deviation + mean
        return table.index_select(0, cells.view(-1)).view(cells.shape)

    def poisson(self, rate: Tensor, most: int, stream: int = 0) -> Tensor:
        """Returns Poisson counts with mean λ = rate · most, for rates (B, …) in [0, 1], at most `most`.

        By inversion, X = #{k : F_λ(k) < u}. The upper 8 of the 16 bits of u select a cell, whose mean of X is in a
        table; the lower 8 bits round that mean up or down at random. This is exact if a cell contains one step of F,
        and the mean is always exact. Rates are quantised to 256 levels, those of 8-bit images.
        """
        draws = self.halves(*rate.shape[1:], stream=stream)
        cells = draws.bitwise_right_shift(8).add_(128)
        cells += rate.mul(255).add_(0.5).int().clamp_(0, 255).mul_(256)
        means = _poisson_table(most, str(self.device)).index_select(0, cells.view(-1)).view(rate.shape)
        return means.add_(draws.bitwise_and_(255).float(), alpha=1 / 256).add_(1 / 512).floor_()


def _send(numbers: NDArray[np.int32], device: torch.device | str) -> Tensor:
    """Copy to a device; to a GPU asynchronously, from pinned memory."""
    tensor = torch.from_numpy(numbers)
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


@lru_cache(maxsize=8)
def _positions(count: int, device: str) -> Tensor:
    """Returns (count,) int32: multiples of the golden ratio modulo 2^32, the inputs of the hash."""
    return torch.arange(count, dtype=torch.int32, device=device).mul_(_signed(_GOLDEN_32))


@lru_cache(maxsize=4)
def _normal_table(device: str) -> Tensor:
    """Returns quantiles of N(0, 1), (65536,), computed on the CPU so that they are bitwise equal on all devices."""
    midpoints = (torch.arange(1 << 16, dtype=torch.float64, device="cpu") + 0.5) / (1 << 16)
    normal: Tensor = torch.special.ndtri(midpoints).float().to(device)
    return normal


@lru_cache(maxsize=16)
def _poisson_table(most: int, device: str) -> Tensor:
    """Returns (256 · 256,): for each level of the rate and each 1/256 of probability, the mean count.

    The mean of X over u in [j, j + 1] / 256 is Σ_k of the fraction of that interval above F(k).
    """
    rates = np.maximum(np.arange(256) / 255 * most, 1e-30)[:, None]
    counts = np.arange(most)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, most)))])
    distribution = np.exp(counts * np.log(rates) - rates - factorials).cumsum(1)
    ends = np.arange(1, 257)
    means = sum((ends - 256 * below[:, None]).clip(0, 1) for below in distribution.T)
    return torch.from_numpy(np.asarray(means, dtype=np.float32).reshape(-1)).to(device)


def _fold(x: Tensor, shift: int, scratch: Tensor) -> Tensor:
    """Compute x ^= x >>> shift in place. int32 shifts are arithmetic; the mask makes the shift logical."""
    torch.bitwise_right_shift(x, shift, out=scratch)
    return x.bitwise_xor_(scratch.bitwise_and_((1 << (32 - shift)) - 1))


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def _mix_64(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + np.uint64(_GOLDEN_64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed
