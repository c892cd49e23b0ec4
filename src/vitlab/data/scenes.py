"""Scenes, the generated data set: images of textured shapes on a cluttered background, with full annotations.

One generator serves classification (`labels`), shape against texture (`shapes`, `textures`), segmentation (`masks`),
detection (`boxes`, `instances`, `visibility`) and, in `scene_questions`, visual question answering. Nothing is
downloaded or stored: image i is a pure function of (seed, i), at any resolution, in any batch.

Shape legend: B scenes, K objects of a scene (object 0 is the main one), P drawn objects of a chunk, h w pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitlab.core.bounds import Range
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.machine_memory import check_memory
from vitlab.corruptions.threads import run_in_threads
from vitlab.data.scene_layout import COLOURS, SHAPES, TEXTURES, Cues, Objects, lay_out, take
from vitlab.data.scene_painting import paint, silhouettes

__all__ = [
    "CLASSES",
    "COLOURS",
    "LARGEST",
    "MEAN",
    "MOST_OBJECTS",
    "SHAPES",
    "SMALLEST",
    "STD",
    "TEXTURES",
    "VERSION",
    "Objects",
    "Scenes",
    "check_scenes",
    "draw_images",
    "draw_scenes",
]

Kinds = str | int | Sequence[str] | Sequence[int] | Tensor

#: Class c is shape c // 5 with texture c % 5.
CLASSES = tuple(f"{texture} {shape}" for shape in SHAPES for texture in TEXTURES)

#: Mean and standard deviation of the pixels in [0, 1], by channel, at the default settings.
MEAN = (0.383, 0.355, 0.35)
STD = (0.263, 0.214, 0.231)

#: Part of the fingerprint of scenes. Increase it with every change of the generator that changes a pixel or a label.
VERSION = 1

MOST_OBJECTS = 8
SMALLEST, LARGEST = 8, 4096  # sides of an image, in pixels; the largest takes about a second to draw
Side = Annotated[int, Range(SMALLEST, LARGEST)]
_CHUNK = 1 << 17  # pixels drawn at once: temporaries fit the CPU cache, memory is bounded


@dataclass(frozen=True)
class Scenes:
    """A batch of scenes. Masks, boxes and instances are computed at first access and cached.

    Args:
        images: (B, 3, h, w) uint8 RGB.
        objects: the objects in them, the main object first.
        seed: the seed of the scenes.
        start: index of the first scene; scene i of the batch is scene start + i of the data set.
    """

    images: Tensor
    objects: Objects
    seed: int
    start: int

    def __len__(self) -> int:
        """Returns the number of scenes, B."""
        return len(self.images)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.images.shape[2], self.images.shape[3]

    @property
    def shapes(self) -> Tensor:
        """(B,) the main object's shape, index into `SHAPES`."""
        return self.objects.shapes[:, 0]

    @property
    def textures(self) -> Tensor:
        """(B,) the main object's texture, index into `TEXTURES`."""
        return self.objects.textures[:, 0]

    @property
    def labels(self) -> Tensor:
        """(B,) the main object's class, index into `CLASSES`."""
        return self.objects.labels[:, 0]

    @cached_property
    def instances(self) -> Tensor:
        """(B, K, h, w) bool: the visible pixels of each object, without those occluded by nearer objects."""
        return self._silhouettes[0]

    @cached_property
    def visibility(self) -> Tensor:
        """(B, K) float32 in [0, 1]: visible share of the object's pixels; 0 if absent."""
        seen = self.instances.flatten(2).sum(2).float()
        return seen / self._silhouettes[1].clamp(min=1)

    @cached_property
    def masks(self) -> Tensor:
        """(B, h, w) uint8: 0 background, else 1 + class of the visible object."""
        masks = self.images.new_zeros(len(self), *self.size)
        labels = (self.objects.labels + 1).to(torch.uint8)
        for k in range(labels.shape[1]):
            masks += self.instances[:, k] * labels[:, k, None, None]
        return masks

    @cached_property
    def boxes(self) -> Tensor:
        """(B, K, 4) float32 x0 y0 x1 y1, tight around the visible pixels, end exclusive; zeros if there are none."""
        x0, x1 = _extent(self.instances.any(2))
        y0, y1 = _extent(self.instances.any(3))
        return torch.stack([x0, y0, x1, y1], dim=2).float()

    def detections(self, i: int) -> dict[str, Tensor]:
        """Returns the visible objects of scene i in torchvision's format: boxes, labels (1 + class), masks."""
        seen = self.visibility[i] > 0
        targets = {"boxes": self.boxes, "labels": self.objects.labels + 1, "masks": self.instances.to(torch.uint8)}
        return {name: values[i][seen] for name, values in targets.items()}

    @cached_property
    def _silhouettes(self) -> tuple[Tensor, Tensor]:
        """Visible pixels (B, K, h, w), and how many each object covers in the image, occluded or not (B, K)."""
        parts = [silhouettes(take(self.objects, rows), self.size) for rows in _chunks(len(self), self.size)]
        seen, covered = zip(*parts, strict=True)
        return torch.cat(seen), torch.cat(covered)


def draw_scenes(
    count: int,
    size: int | tuple[int, int] = 32,
    seed: int = 0,
    start: int = 0,
    objects: int = 4,
    shape: Kinds | None = None,
    texture: Kinds | None = None,
    cues: Cues = "free",
) -> Scenes:
    """Draw scenes `start` … `start + count - 1` of the infinite data set of `seed`.

    A scene does not depend on the batch that it is drawn in: 0…9 and 10…19 equal 0…19 bit for bit. Its structure does
    not depend on `size`: a square scene is the same at 32 and at 224 pixels.

    Args:
        count: number of scenes, B.
        size: side, or (height, width).
        seed: any integer.
        start: index of the first scene. Training and test sets are two ranges, or two seeds.
        objects: most objects per scene, 1 to 8; uniform, less those that cannot be placed.
        shape: the main object's shape: a name or index for all, or one per scene. The rest of the scene is unchanged.
        texture: the main object's texture, likewise: the same silhouette with another interior.
        cues: how the main object's texture depends on its shape if `texture` is not given: `free`, independent;
            `agree`, texture i on shape i (five classes that both cues distinguish); `conflict`, never texture i on
            shape i. Train with `agree` and test with `conflict` to see whether a model follows `shapes` or `textures`.

    >>> scenes = draw_scenes(3, size=(32, 48), seed=1)
    >>> scenes.images.shape, scenes.masks.shape, scenes.boxes.shape
    (torch.Size([3, 3, 32, 48]), torch.Size([3, 32, 48]), torch.Size([3, 4, 4]))
    >>> bool((draw_scenes(1, size=(32, 48), seed=1, start=2).images == scenes.images[2:]).all())
    True
    >>> CLASSES[draw_scenes(1, shape="star", texture="dotted").labels[0]]
    'dotted star'
    """
    frame = check_scenes(count, size, seed, start, objects, cues)
    if texture is not None and cues != "free":
        raise VitlabError(f"invalid texture= with cues={cues!r}; both set the main object's texture; omit one of them")
    chosen = _choose("shape", shape, SHAPES, count), _choose("texture", texture, TEXTURES, count)
    index = np.arange(start, start + count, dtype=np.uint64)
    images, placed = _draw(index, frame, seed, objects, chosen, cues)
    joined = (torch.cat([getattr(part, field.name) for part in placed]) for field in fields(Objects))
    return Scenes(images, Objects(*joined), seed, start)


def draw_images(index: Tensor, size: tuple[int, int], seed: int = 0, objects: int = 4, cues: Cues = "free") -> Tensor:
    """Returns the images (B, 3, h, w) of scenes of any indices (B,), in any order; settings as in `draw_scenes`.

    >>> few = draw_images(torch.tensor([7, 2]), (16, 16))
    >>> bool((few == draw_scenes(8, 16).images[[7, 2]]).all())
    True
    """
    return _draw(index.numpy().astype(np.uint64), size, seed, objects, (None, None), cues)[0]


def _draw(
    index: NDArray[np.uint64],
    size: tuple[int, int],
    seed: int,
    objects: int,
    chosen: tuple[Tensor | None, Tensor | None],
    cues: Cues,
) -> tuple[Tensor, list[Objects]]:
    """Returns images (B, 3, h, w) and the objects in them, by chunk."""
    what = f"a batch of {len(index):,} scenes of {size[0]}x{size[1]}"
    check_memory(what, 3 * len(index) * size[0] * size[1], advice="use fewer or smaller scenes")
    images = torch.empty(len(index), 3, *size, dtype=torch.uint8, device="cpu")
    placed: dict[int, Objects] = {}

    def draw(rows: slice) -> None:
        main_shapes, main_textures = (None if kinds is None else kinds[rows] for kinds in chosen)
        laid_out, appearance = lay_out(seed, index[rows], size, objects, main_shapes, main_textures, cues)
        images[rows] = paint(laid_out, appearance, size)
        placed[rows.start] = laid_out

    run_in_threads(draw, len(index), _step(size))
    return images, [placed[start] for start in sorted(placed)]


def check_scenes(
    count: int, size: int | tuple[int, int], seed: int, start: int, objects: int, cues: str
) -> tuple[int, int]:
    """Raise if a setting of `draw_scenes` is invalid; returns the height and width."""
    sides = (size, size) if isinstance(size, int) else size if isinstance(size, tuple | list) else ()
    if len(sides) != 2 or not all(isinstance(side, int) and SMALLEST <= side <= LARGEST for side in sides):
        raise VitlabError(f"invalid size={size!r}; expected a side or (height, width) of {SMALLEST} to {LARGEST}")
    limits = {"count": (count, 1, 2**31), "start": (start, 0, 2**62), "objects": (objects, 1, MOST_OBJECTS)}
    for name, (value, low, high) in limits.items():
        if not isinstance(value, int) or not low <= value <= high:
            raise VitlabError(f"invalid {name}={value!r}; expected an integer from {low} to {high}")
    if not isinstance(seed, int):
        raise VitlabError(f"invalid seed={seed!r}; expected an integer")
    if cues not in get_args(Cues):
        raise unknown("cues", cues, get_args(Cues))
    return sides[0], sides[1]


def _choose(what: str, given: Kinds | None, names: Sequence[str], count: int) -> Tensor | None:
    """Returns one index into `names` per scene (B,), from a name, an index, or one of these per scene."""
    if given is None:
        return None
    if isinstance(given, Tensor):
        given = given.flatten().tolist()
    each: list[str | int] = [given] if isinstance(given, str | int) else list(given)
    for kind in each:
        if kind not in names and kind not in range(len(names)):
            raise unknown(what, kind, names)
    if len(each) not in (1, count):
        raise VitlabError(f"got {len(each)} {what}s for {count} scenes; expected one for all, or one per scene")
    numbers = [names.index(kind) if isinstance(kind, str) else int(kind) for kind in each]
    return torch.tensor(numbers, device="cpu").expand(count)


def _step(size: tuple[int, int]) -> int:
    """Returns the number of scenes drawn at once."""
    return max(1, _CHUNK // (size[0] * size[1]))


def _chunks(count: int, size: tuple[int, int]) -> Iterator[slice]:
    """Yields the rows that are drawn at once."""
    for low in range(0, count, _step(size)):
        yield slice(low, min(low + _step(size), count))


def _extent(hits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first true index of (…, n) and one past the last; 0 and 0 if there is none."""
    hits = hits.to(torch.uint8)
    last = (hits.shape[-1] - hits.flip(-1).argmax(-1)) * hits.any(-1)
    return hits.argmax(-1), last
