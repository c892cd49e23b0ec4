"""Positions and appearance of the objects of a scene, from counter-based random numbers; draws no pixels.

Shape legend: B scenes, K objects of a scene (object 0 is the main one), S strokes of clutter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SHAPES = ("circle", "square", "triangle", "star", "cross")
TEXTURES = ("plain", "striped", "checked", "dotted", "ringed")

_PALETTE = {
    "red": (214, 48, 44),
    "orange": (240, 138, 32),
    "yellow": (240, 212, 56),
    "green": (56, 166, 76),
    "cyan": (56, 190, 204),
    "blue": (48, 88, 216),
    "purple": (138, 64, 190),
    "pink": (242, 130, 180),
}
COLOURS = tuple(_PALETTE)

_TRIES = 6  # candidate positions per object
_STROKES = 6  # strokes of clutter behind the objects
_SCENE, _CLUTTER, _OBJECT, QUESTION = 0, 1, 100, 1000  # streams of random numbers

Cues = Literal["free", "agree", "conflict"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Objects:
    """The objects of each scene. Lengths are in pixels, x to the right, y downwards.

    Args:
        present: (B, K) whether the object exists; if not, its other fields are undefined. Object 0 always exists.
        shapes: (B, K) index into `SHAPES`.
        textures: (B, K) index into `TEXTURES`.
        colours: (B, K) index into `COLOURS`.
        centres: (B, K, 2) x and y.
        radii: (B, K) radius of the disc of equal area: every shape covers π·radius² pixels.
        angles: (B, K) rotation in radians, within ±0.3.
        depths: (B, K) 0 is the nearest; nearer objects occlude farther ones.
    """

    present: Tensor
    shapes: Tensor
    textures: Tensor
    colours: Tensor
    centres: Tensor
    radii: Tensor
    angles: Tensor
    depths: Tensor

    @property
    def labels(self) -> Tensor:
        """(B, K) index into `CLASSES`."""
        return self.shapes * len(TEXTURES) + self.textures


@dataclass(frozen=True)
class Surface:
    """A texture in two tones: anchors (…, 2) and periods (…) in pixels, tones (…, 2, 3) in 0–255."""

    textures: Tensor
    anchors: Tensor
    angles: Tensor
    periods: Tensor
    tones: Tensor


@dataclass(frozen=True)
class Appearance:
    """Surfaces of the objects (B, K) and of the background (B), strokes (B, S) and light (B, 2).

    A stroke is a bar of half `lengths` by half `widths` that adds `shades` to the background; `light` is the gradient
    of brightness over the image.
    """

    surfaces: Surface
    ground: Surface
    centres: Tensor
    angles: Tensor
    lengths: Tensor
    widths: Tensor
    shades: Tensor
    light: Tensor


Record = TypeVar("Record", Objects, Surface)


def take(record: Record, rows: slice | Tensor | tuple[Tensor, ...]) -> Record:
    """Index every field of a record by the same rows."""
    return type(record)(*(getattr(record, field.name)[rows] for field in fields(record)))


def uniform(seed: int, index: NDArray[np.uint64], streams: Sequence[int], count: int) -> Floats:
    """Returns random numbers that are a pure function of (seed, index, stream, position): SplitMix64 as a hash.

    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014 (the mixing function).

    Args:
        index: (B,) of uint64. streams: S of them. count: numbers of each.

    Returns:
        (B, S, count) in [0, 1).

    >>> both = uniform(7, np.arange(4, dtype=np.uint64), [0, 1], 3)
    >>> bool((uniform(7, np.array([2], dtype=np.uint64), [1], 3) == both[2:3, 1:]).all())
    True
    """
    key = _mix(_mix(np.array([seed % 2**64], dtype=np.uint64)) + index)
    key = _mix(key[:, None] + np.asarray(streams, dtype=np.uint64))
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    numbers: Floats = (_mix(key[..., None] + steps) >> np.uint64(11)) * 2.0**-53
    return numbers


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return z


def lay_out(
    seed: int,
    index: NDArray[np.uint64],
    size: tuple[int, int],
    objects: int,
    main_shapes: Tensor | None = None,
    main_textures: Tensor | None = None,
    cues: Cues = "free",
) -> tuple[Objects, Appearance]:
    """Returns the objects of scenes `index` (B,), at most `objects` in each, and their appearance.

    `main_shapes` and `main_textures` (B,) override those of the main object and change nothing else. Object k has its
    own stream of random numbers, so that they do not depend on the number of objects.
    """
    unit = min(size)
    numbers = uniform(seed, index, range(_OBJECT, _OBJECT + objects), 16 + 2 * _TRIES)
    shape, texture, colour, scale, angle, depth, gap, turn, period, phase_x, phase_y, contrast = numbers.T[:12]
    jitter, tries = numbers[..., 12:15], numbers[..., 16:].reshape(*numbers.shape[:2], _TRIES, 2)
    scene = uniform(seed, index, [_SCENE], 20)[:, 0]

    # The ranges of size, position, rotation and background are chosen so that a ViT of 3 blocks exceeds chance within
    # a few hundred steps at 32 pixels. A darker background raised the accuracy for shape alone (5-way, one object,
    # 500 steps of 64, one run each) from 24 % to 41 %.
    # In units of the shorter side. The main object is the largest: the others are at most 0.65 of it.
    radii = 0.26 + 0.08 * scale.T
    radii[:, 1:] = radii[:, :1] * (0.4 + 0.25 * scale.T[:, 1:])
    requested = np.arange(objects) < 1 + np.floor(scene[:, :1] * objects)
    centres, present = _place_objects(tries, radii, gap.T, requested, (size[1] / unit, size[0] / unit))

    # Coarse enough to be distinguished at 32 pixels: at least 0.11 of the side, 3.5 pixels.
    periods = np.maximum(radii * (0.6 + 0.25 * period.T), 0.11)
    anchors = centres + (np.stack([phase_x.T, phase_y.T], axis=2) - 0.5) * periods[..., None]
    colours = np.floor(colour.T * len(COLOURS)).astype(np.int64)
    tones = _tones(colours, jitter, contrast.T)

    shapes, textures = _kinds(shape.T, SHAPES), _kinds(texture.T, TEXTURES)
    if main_shapes is not None:
        shapes[:, 0] = main_shapes
    textures[:, 0] = _main_textures(shapes[:, 0], texture[0], cues) if main_textures is None else main_textures

    placed = Objects(
        present=torch.from_numpy(present),
        shapes=shapes,
        textures=textures,
        colours=torch.from_numpy(colours),
        centres=_single(centres * unit),
        radii=_single(radii * unit),
        angles=_single((angle.T - 0.5) * 0.6),
        depths=torch.from_numpy(depth.T.argsort(axis=1).argsort(axis=1)),
    )
    surfaces = Surface(
        textures, _single(anchors * unit), _single(turn.T * np.pi), _single(periods * unit), _single(tones)
    )
    return placed, _appearance(seed, index, scene, surfaces, size)


def main_labels(seed: int, index: NDArray[np.uint64], cues: Cues = "free") -> Tensor:
    """Returns the labels of scenes `index` (B,), those of the main objects of `lay_out`, without the rest.

    >>> index = np.arange(9, dtype=np.uint64)
    >>> bool((main_labels(3, index) == lay_out(3, index, (32, 32), 4)[0].labels[:, 0]).all())
    True
    """
    shape, texture = uniform(seed, index, [_OBJECT], 2)[:, 0].T
    shapes = _kinds(shape, SHAPES)
    return shapes * len(TEXTURES) + _main_textures(shapes, texture, cues)


def _main_textures(shapes: Tensor, numbers: Floats, cues: Cues) -> Tensor:
    """Returns the main objects' textures (B,), from their shapes (B,) and the random numbers (B,) of their textures."""
    if cues == "agree":
        return shapes
    if cues == "conflict":
        return (shapes + 1 + _kinds(numbers, TEXTURES[1:])) % len(TEXTURES)
    return _kinds(numbers, TEXTURES)


def _place_objects(
    tries: Floats, radii: Floats, gap: Floats, requested: NDArray[np.bool_], frame: tuple[float, float]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Returns centres (B, K, 2), and which objects are placed (B, K).

    Each object uses the candidate of `_TRIES` whose distance to the nearest neighbour, relative to the sum of the
    radii, is closest to a random number in [0.7, 1.7]: some overlap, most do not. Below 0.62 the object is omitted, so
    that all objects of a scene are visible.
    """
    margin = 0.85 * radii[..., None, None]
    margin[:, 0] *= 1.6  # the main object is nearer to the centre
    candidates = margin + tries * (np.array(frame) - 2 * margin)  # (B, K, tries, 2)
    centres, present = candidates[:, :, 0].copy(), requested.copy()
    rows = np.arange(len(radii))
    for k in range(1, radii.shape[1]):
        distances = np.linalg.norm(candidates[:, k, :, None] - centres[:, None, :k], axis=3)  # (B, tries, k)
        distances /= radii[:, None, k : k + 1] + radii[:, None, :k]
        nearest = np.where(present[:, None, :k], distances, np.inf).min(axis=2)
        best = np.abs(nearest - (0.7 + gap[:, k, None])).argmin(axis=1)
        centres[:, k] = candidates[rows, k, best]
        present[:, k] &= nearest[rows, best] >= 0.62
    return centres, present


def _tones(colours: NDArray[np.int64], jitter: Floats, contrast: Floats) -> Floats:
    """Returns the tones of objects (B, K, 2, 3): the named colour with jitter, and a darker or lighter one on it."""
    paint = np.array(list(_PALETTE.values()), dtype=np.float64)[colours] + (jitter - 0.5) * 36
    amount = (contrast * 2 % 1)[..., None]
    darker, lighter = paint * (0.6 - 0.2 * amount), paint + (255 - paint) * (0.55 + 0.3 * amount)
    ink = np.where(contrast[..., None] < 0.5, darker, lighter)
    return np.stack([paint, ink], axis=2)


def _appearance(
    seed: int, index: NDArray[np.uint64], scene: Floats, surfaces: Surface, size: tuple[int, int]
) -> Appearance:
    """Returns the background (dark, muted, any texture, low contrast), strokes of clutter on it, and the light."""
    unit, sides = min(size), np.array(size[::-1], dtype=np.float64)
    grey = 30 + 70 * scene[:, 1:2] + 40 * (scene[:, 2:5] - 0.5)
    other = grey + np.where(scene[:, 5:6] < 0.5, -1, 1) * (10 + 25 * scene[:, 6:7]) + 20 * (scene[:, 7:10] - 0.5)
    ground = Surface(
        _kinds(scene[:, 10], TEXTURES),
        _single(scene[:, 11:13] * sides),
        _single(scene[:, 13] * np.pi),
        _single((0.12 + 0.28 * scene[:, 14]) * unit),
        _single(np.stack([grey, other], axis=1)),
    )
    strokes = uniform(seed, index, [_CLUTTER], _STROKES * 6).reshape(-1, _STROKES, 6)
    return Appearance(
        surfaces,
        ground,
        centres=_single(strokes[..., :2] * sides),
        angles=_single(strokes[..., 2] * np.pi),
        lengths=_single((0.1 + 0.35 * strokes[..., 3]) * unit),
        widths=_single((0.012 + 0.05 * strokes[..., 4]) * unit),
        shades=_single(np.where(strokes[..., 5] < 0.5, -1, 1) * (10 + 35 * (strokes[..., 5] * 2 % 1))),
        light=_single((scene[:, 15:17] - 0.5) * 0.7 / sides),
    )


def _kinds(numbers: Floats, names: Sequence[str]) -> Tensor:
    return torch.from_numpy(np.floor(numbers * len(names)).astype(np.int64))


def _single(values: Floats) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
