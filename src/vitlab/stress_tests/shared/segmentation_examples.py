"""A few images with their label maps and predictions, for pictures in reports.

Shape legend: S examples, B batch, K classes, h w pixels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from vitlab.adapters.wrappers import unwrap
from vitlab.eval_mode import eval_mode
from vitlab.stress_tests.shared.pixel_evaluation import normalisation, to_pixels, validated_batches
from vitlab.stress_tests.shared.segmentation_evaluation import logits_of, segment

_LONGEST = 160  # pixels of the longer side of a stored picture


def examples(model: nn.Module, sets: Iterable[Iterable[Any]], count: int, test_name: str) -> dict[str, np.ndarray]:
    """Returns pictures of the first image of some batches, without a perturbation.

    Args:
        model: the segmentation model.
        sets: batches of (images, masks); the examples are distributed over them.
        count: S, the largest number of examples.
        test_name: the name of the stress test, for errors.

    Returns:
        `example_image` (S, h, w, 3) uint8, `example_truth` and `example_prediction` (S, h, w) uint8, all of one size;
        empty if `count` is 0.
    """
    sets = list(sets)
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    inner = unwrap(model)
    device = next((parameter.device for parameter in inner.parameters()), torch.device("cpu"))
    size: tuple[int, int] | None = None
    for number, batches in enumerate(sets):
        share = count // len(sets) + (number < count % len(sets))
        mean, std = normalisation(inner, batches, test_name)
        with eval_mode(inner):
            for place, (given, masks) in enumerate(validated_batches(batches, test_name, None, least=1)):
                if place == share:
                    break
                size = size or _size(given.shape[-2], given.shape[-1])
                pixels = to_pixels(given[:1].to(device), mean, std, test_name)
                label_map = segment(logits_of(inner, pixels, mean, std, test_name)[0], tuple(masks.shape[1:]))
                image = F.interpolate(pixels, size, mode="bilinear", antialias=True)[0].permute(1, 2, 0)
                picture = (255 * image.clamp(0, 1)).round().byte().cpu().numpy()
                found.append((picture, _small(masks[0], size), _small(label_map, size)))
    names = ("example_image", "example_truth", "example_prediction")
    return {name: np.stack(each) for name, each in zip(names, zip(*found, strict=True), strict=True)} if found else {}


def _size(height: int, width: int) -> tuple[int, int]:
    factor = min(1.0, _LONGEST / max(height, width))
    return max(1, round(height * factor)), max(1, round(width * factor))


def _small(labels: torch.Tensor, size: tuple[int, int]) -> np.ndarray:
    """The labels at the nearest pixels; labels above 255 are stored as 255."""
    resized = F.interpolate(labels[None, None].float(), size, mode="nearest-exact")[0, 0]
    return resized.clamp(0, 255).byte().cpu().numpy()
