"""Shape against texture: which cue a classifier of scenes follows where the two are in conflict.

Shape legend: n scenes, K classes (25: shape 5 × texture 5; or 5: texture i on shape i).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.adapters.wrappers import unwrap
from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.data.scenes import CLASSES, MEAN, SHAPES, STD, TEXTURES, draw_scenes
from vitlab.eval_mode import eval_mode
from vitlab.preprocessing import normalisation_of
from vitlab.stress_tests.shared.pixel_evaluation import classifier, mean_and_error, normalisation, result

CARD = Card(
    title="Shape against texture where the cues conflict",
    paper="Geirhos et al., ICLR 2019, on embedded scenes",
    cost="one forward",
    inputs="optional images",
    passes="one",
    needs=("scenes classes",),
)

_KINDS = ("shape", "texture", "both", "neither")


def decide(predicted: Tensor, shapes: Tensor, textures: Tensor, classes: int) -> Tensor:
    """Which cue each decision follows: 0 shape alone, 1 texture alone, 2 both, 3 neither.

    Args:
        predicted: (n,) class indices.
        shapes, textures: (n,) what is in the picture.
        classes: 25, class c is shape c // 5 with texture c % 5; or 5, class i is both shape i and texture i.

    >>> decide(torch.tensor([0, 1, 4]), torch.tensor([0, 0, 0]), torch.tensor([1, 1, 1]), 5)
    tensor([0, 1, 3])
    >>> decide(torch.tensor([1, 2, 6, 24]), torch.tensor([0, 0, 0, 0]), torch.tensor([1, 1, 1, 1]), 25)
    tensor([2, 0, 1, 3])
    """
    count = len(TEXTURES)
    says_shape, says_texture = (predicted // count, predicted % count) if classes > count else (predicted, predicted)
    shape, texture = says_shape == shapes, says_texture == textures
    return torch.where(shape & texture, 2, torch.where(shape, 0, torch.where(texture, 1, 3)))


def measure(
    model: nn.Module,
    batches: Iterable[Any] | None = None,
    *,
    count: int = 500,
    size: int | tuple[int, int] | None = None,
    seed: int = 0,
    start: int = 0,
    batch_size: int = 50,
) -> Measurement:
    """Share of decisions by shape and by texture, on scenes whose main object has never texture i on shape i.

    Args:
        model: a classifier of the 25 classes of scenes, or of 5 where both cues agreed in training; it is left as it
            was found.
        batches: only tells the size and the normalisation of the images that the model eats; None takes these from the
            model, and, where it declares none, the mean and std of scenes.
        count: how many scenes, n.
        size: of the scenes; by default that of the batches, else the model's own.
        seed, start: which scenes; choose others than those trained on.
        batch_size: of the forwards.

    Returns:
        `share`, `standard_error` (decision), decisions being shape alone, texture alone, both or neither;
        `shape_bias`, shape / (shape + texture), the bias of Geirhos et al., and its binomial `shape_bias_error`, NaN
        where no decision follows one cue alone; `shape_accuracy`, `texture_accuracy` ().
    """
    if count < 2 or batch_size < 1:
        raise VitlabError(
            f"shape_texture got count={count}, batch_size={batch_size}; give at least 2 scenes, 1 a batch"
        )
    inner = unwrap(model)
    device = next((parameter.device for parameter in inner.parameters()), torch.device("cpu"))
    mean, std = _normalisation(inner, batches)
    frame = _size(inner, batches) if size is None else size
    classify = classifier(inner, mean, std, next(chain(inner.parameters(), [torch.zeros(1)])), "shape_texture")
    found = []
    with eval_mode(inner):
        for low in range(0, count, batch_size):
            scenes = draw_scenes(min(batch_size, count - low), frame, seed, start + low, cues="conflict")
            logits = classify(scenes.images.to(device).float() / 255)
            found.append(decide(logits.argmax(1).cpu(), scenes.shapes, scenes.textures, _classes(logits)))
    settings = {"count": count, "size": size, "seed": seed, "start": start, "batch_size": batch_size}
    data = getattr(batches, "fingerprint", "") or "scenes"  # the size and normalisation were theirs
    about = provenance(device=str(device), images=count, data=data, scenes="cues='conflict'")
    values, axes = _values(torch.cat(found).numpy()), {"decision": _KINDS}
    errors = {"share": "standard_error", "shape_bias": "shape_bias_error"}
    return result("shape_texture", inner, values, axes, settings, about, errors, {})


def _values(decisions: np.ndarray) -> dict[str, np.ndarray]:
    each = (decisions == np.arange(len(_KINDS))[:, None]).astype(float)
    share, error = mean_and_error(each)
    single = each[:2].sum()
    bias = each[0].sum() / single if single else float("nan")
    values = {"share": share, "standard_error": error, "shape_bias": bias}
    values["shape_bias_error"] = np.sqrt(bias * (1 - bias) / single) if single else float("nan")
    values |= {"shape_accuracy": share[0] + share[2], "texture_accuracy": share[1] + share[2]}
    return {name: np.asarray(value) for name, value in values.items()}


def _classes(logits: Tensor) -> int:
    classes = int(logits.shape[1])
    if classes not in (len(CLASSES), len(SHAPES)):
        raise VitlabError(
            f"shape_texture needs a classifier of scenes, with {len(CLASSES)} classes or {len(SHAPES)}; "
            f"this one has {classes}"
        )
    return classes


def _normalisation(model: nn.Module, batches: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    said = isinstance(batches, Batches) or normalisation_of(model)
    return normalisation(model, batches, "shape_texture") if said else (MEAN, STD)


def _size(model: nn.Module, batches: Iterable[Any] | None) -> tuple[int, int]:
    """Height and width of the images that the model eats."""
    item = next(iter(batches), None) if batches is not None else None
    images = item[0] if isinstance(item, (tuple, list)) else item
    if isinstance(images, Tensor) and images.ndim == 4:
        return int(images.shape[2]), int(images.shape[3])
    return describe(model).input_size
