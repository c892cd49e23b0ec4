"""Observer of the feature maps of the residual stream, before and after every MSA, MLP and Conv.

Shape legend: B images, N tokens, h w grid, D channels, k numbers per map.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from vitlab.core.anatomy import TAPS, Anatomy, Block
from vitlab.core.errors import VitlabError
from vitlab.instruments.shared.device_buffer import fetch
from vitlab.instruments.shared.one_pass import Observer
from vitlab.recording.tape import Feature

_STEPS = {"conv": "Conv", "pooling": "Pooling", "mlp": "MLP"}  # all other mixers are attention

Tap = tuple[Block, str]


class ResidualStream(Observer):
    """Applies `summary` to every map of the stream, without prefix tokens, and averages the result over images.

    Maps with a single point and maps whose token order is unknown are skipped.
    """

    places = TAPS

    def begin(self, anatomy: Anatomy) -> None:
        """Find the taps with feature maps."""
        self.taps: list[Tap] = [(b, place) for b in anatomy.blocks for place in TAPS if _has_map(b, place)]
        if not self.taps:
            unordered = any(seam.layout.permutation == () for b in anatomy.blocks for seam in b.taps + b.seams)
            advice = "the order of its tokens is not known" if unordered else "use larger images"
            raise VitlabError(
                f"{self.kind} needs feature maps with more than one point; this {anatomy.family!r} has none; {advice}"
            )
        self._summaries: dict[tuple[str, str], list[tuple[int, Tensor]]] = {
            (b.name, place): [] for b, place in self.taps
        }
        self._last: tuple[Tensor, int, Tensor] | None = None

    def summary(self, maps: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, h·w, D) -> (k,), a mean over images and channels."""
        raise NotImplementedError

    def feature(self, block: Block, feature: Feature) -> None:
        """Summarise one map."""
        summaries = self._summaries.get((block.name, feature.place))
        if summaries is None:
            return
        if feature.tokens.shape[1] != feature.layout.tokens:
            raise VitlabError(f"{self.kind} needs images of one size; measure each image size separately")
        summaries.append((len(feature.tokens), self._summary(feature)))

    def _summary(self, feature: Feature) -> Tensor:
        """Summarise a map; reuse the last result if a block's input is the unchanged output of the previous block."""
        tokens = feature.tokens
        version = -1 if tokens.is_inference() else tokens._version
        if self._last is not None and version >= 0 and self._last[1] == version and _same(tokens, self._last[0]):
            return self._last[2]
        with torch.autocast(tokens.device.type, enabled=False):
            maps = tokens[:, feature.layout.prefix :]
            value = self.summary(maps if maps.dtype == torch.float64 else maps.float(), feature.layout.grid)
        self._last = (tokens, version, value)  # keeps the tensor alive, so that its memory is not reused
        return value

    def means(self) -> list[np.ndarray]:
        """For each tap, the mean over all images, (k,)."""
        self._last = None
        means = []
        stacks = fetch([torch.stack([value for _, value in self._summaries[b.name, place]]) for b, place in self.taps])
        for (block, place), values in zip(self.taps, stacks, strict=True):
            mean = np.average(values, axis=0, weights=[count for count, _ in self._summaries[block.name, place]])
            if not np.isfinite(mean).all():
                raise VitlabError(
                    f"{self.kind}: features at {place} of {block.name} are not finite; "
                    "check the model's weights and the images for NaN"
                )
            means.append(mean)
        return means

    def grids(self) -> np.ndarray:
        """Grid rows and columns at each tap, (place, 2)."""
        return np.array([_grid(block, place) for block, place in self.taps])

    def labels(self) -> tuple[str, ...]:
        """Names of the taps, in execution order: `blocks.0 in`, `blocks.0 mid`, `blocks.0 out`."""
        return tuple(f"{block.name} {place.removeprefix('block.')}" for block, place in self.taps)

    def steps(self) -> Iterator[tuple[str, int, int]]:
        """Yield the steps between two taps of a block: name, such as `blocks.0 MSA`, and indices of both taps."""
        for i, ((block, before), (same, after)) in enumerate(zip(self.taps, self.taps[1:], strict=False)):
            if block is not same or (before == "block.in" and after == "block.out" and block.tap("block.mid")):
                continue
            kind = "MLP" if before == "block.mid" else _STEPS.get(block.mixer.kind, "MSA")
            if kind == "MLP" and after == "block.mid":
                kind = "token MLP"  # first half of an MLP-Mixer block, over tokens
            yield f"{block.name} {kind}", i, i + 1


def changes(values: np.ndarray, steps: list[tuple[str, int, int]]) -> np.ndarray:
    """Value after minus value before, for each step.

    >>> changes(np.array([1.0, 4.0, 2.0]), [("a MSA", 0, 1), ("a MLP", 1, 2)])
    array([ 3., -2.])
    """
    return np.array([values[after] - values[before] for _, before, after in steps])


def _grid(block: Block, place: str) -> tuple[int, int]:
    tap = block.tap(place)
    assert tap is not None
    return tap.layout.grid


def _has_map(block: Block, place: str) -> bool:
    tap = block.tap(place)
    return tap is not None and tap.layout.permutation != () and tap.layout.grid[0] * tap.layout.grid[1] > 1


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same view of the same memory."""
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
