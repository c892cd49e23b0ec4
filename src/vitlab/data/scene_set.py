"""Scenes as a data set of two splits; images are drawn on access."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vitlab.data.drawn import DrawnImages
from vitlab.data.images import DataSet, from_splits
from vitlab.data.scene_layout import SHAPES, TEXTURES, Cues, main_labels
from vitlab.data.scenes import CLASSES, MEAN, STD, VERSION, check_scenes, draw_images

#: Index of the first test scene, for any number of training scenes: the splits never overlap.
TEST_SCENES = 2**40

#: What the classes of a scene's object are: its shape with its texture, or one of them.
SceneLabels: TypeAlias = Literal["class", "shape", "texture"]

#: Largest number of scenes of a split. A set stores 16 bytes per scene before drawing.
MOST = 10_000_000

_LABELS = 1 << 20  # labels computed at once, to bound temporary memory
_SPEED = 1.5e7  # pixels per second on one core, for estimates


def open_scenes(
    train: int,
    test: int,
    size: int | tuple[int, int] = 32,
    seed: int = 0,
    objects: int = 4,
    cues: Cues = "free",
    labels: SceneLabels = "class",
) -> DataSet:
    """Open `train` and `test` scenes, labelled by the main object; the other settings as in `draw_scenes`.

    >>> data = open_scenes(10_000, 2_000, 224)
    >>> len(data.train), data.test.subset([5]).pixels.shape
    (10000, torch.Size([1, 3, 224, 224]))
    """
    for count, start in ((train, 0), (test, TEST_SCENES)):
        frame = check_scenes(count, size, seed, start, objects, cues)
    draw = partial(draw_images, size=frame, seed=seed, objects=objects, cues=cues)
    generator = f"scenes {VERSION}: size={frame}, seed={seed}, objects={objects}, cues={cues}"

    def split(count: int, start: int) -> DrawnImages:
        indices = torch.arange(start, start + count)
        numbers = indices.numpy().astype(np.uint64)
        parts = [main_labels(seed, numbers[low : low + _LABELS], cues) for low in range(0, count, _LABELS)]
        return DrawnImages(draw, generator, frame, indices, *_named(torch.cat(parts), labels), MEAN, STD)

    return from_splits("scenes", split(train, 0), split(test, TEST_SCENES))


def _named(classes: Tensor, labels: SceneLabels) -> tuple[Tensor, tuple[str, ...]]:
    """Returns the labels of some classes, and the names of all labels; class c is shape c // 5 with texture c % 5."""
    if labels == "shape":
        return classes // len(TEXTURES), SHAPES
    return (classes % len(TEXTURES), TEXTURES) if labels == "texture" else (classes, CLASSES)


def cost(count: int) -> str:
    """Describe the cost of drawing `count` scenes.

    >>> cost(10**9)
    '1,000,000,000 scenes of 224x224 take about 151 TB of memory and 929 hours on one core'
    >>> cost(10**6)
    '1,000,000 scenes of 224x224 take about 151 GB of memory and 56 minutes on one core'
    """
    pixels = count * 224 * 224
    size, minutes = 3 * pixels / 1e9, pixels / _SPEED / 60
    memory = f"{size:,.0f} GB" if size < 1000 else f"{size / 1000:,.0f} TB"
    time = f"{minutes:,.0f} minutes" if minutes < 120 else f"{minutes / 60:,.0f} hours"
    return f"{count:,} scenes of 224x224 take about {memory} of memory and {time} on one core"
