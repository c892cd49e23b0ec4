"""Shape against texture: which cue a classifier of scenes follows when the two conflict.

Shape legend: n scenes, K classes (25: shape 5 × texture 5; or 5: texture i on shape i).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import ceil
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.adapters.wrappers import unwrap
from vitlab.core.batches import Batches
from vitlab.core.bounds import Range, Seed
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.core.step_cache import report_done
from vitlab.data.scene_set import cost
from vitlab.data.scenes import CLASSES, MEAN, SHAPES, STD, TEXTURES, Side, draw_scenes
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
    """Returns the cue that each prediction matches: 0 shape alone, 1 texture alone, 2 both, 3 neither.

    Args:
        predicted: (n,) class indices.
        shapes, textures: (n,) the shape and the texture of the object.
        classes: 25: class c is shape c // 5 with texture c % 5; or 5: class i is both shape i and texture i.

    >>> decide(torch.tensor([0, 1, 4]), torch.tensor([0, 0, 0]), torch.tensor([1, 1, 1]), 5)
    tensor([0, 1, 3])
    >>> decide(torch.tensor([1, 2, 6, 24]), torch.tensor([0, 0, 0, 0]), torch.tensor([1, 1, 1, 1]), 25)
    tensor([2, 0, 1, 3])
    """
    count = len(TEXTURES)
    by_shape, by_texture = (predicted // count, predicted % count) if classes > count else (predicted, predicted)
    shape, texture = by_shape == shapes, by_texture == textures
    return torch.where(shape & texture, 2, torch.where(shape, 0, torch.where(texture, 1, 3)))


def measure(
    model: nn.Module,
    batches: Iterable[Any] | None = None,
    *,
    count: Annotated[int, Range(2, 100_000, cost=cost)] = 500,
    size: Side | tuple[Side, Side] | None = None,
    seed: Seed = 0,
    start: Annotated[int, Range(0, 2**62)] = 0,
    batch_size: Annotated[int, Range(1, 65_536)] = 50,
) -> Measurement:
    """Measure the share of decisions by shape and by texture, on scenes where texture i is never on shape i.

    Args:
        model: a classifier of the 25 classes of scenes, or of 5 classes if both cues agreed in training; its state is
            restored on exit.
        batches: used only for the size and the normalisation of the model's input. None uses those that the model
            declares, and the mean and std of scenes if it declares none.
        count: number of scenes, n.
        size: size of the scenes; default that of the batches, else that of the model.
        seed, start: select the scenes; use others than for training.
        batch_size: scenes per forward pass.

    Returns:
        `share`, `standard_error` (decision), where a decision is by shape alone, texture alone, both or neither;
        `shape_bias`, shape / (shape + texture), the bias of Geirhos et al., and its binomial `shape_bias_error`, NaN
        if no decision is by one cue alone; `shape_accuracy`, `texture_accuracy` and their `…_error` ().
    """
    inner = unwrap(model)
    device = next((parameter.device for parameter in inner.parameters()), torch.device("cpu"))
    mean, std = _normalisation(inner, batches)
    frame = _size(inner, batches) if size is None else size
    classify = classifier(inner, mean, std, next(chain(inner.parameters(), [torch.zeros(1)])), "shape_texture")
    decisions = []
    with eval_mode(inner):
        for low in range(0, count, batch_size):
            scenes = draw_scenes(min(batch_size, count - low), frame, seed, start + low, cues="conflict")
            logits = classify(scenes.images.to(device).float() / 255)
            decisions.append(decide(logits.argmax(1).cpu(), scenes.shapes, scenes.textures, _classes(logits)))
            report_done(f"scenes up to {low + len(scenes):,} of {count:,}", ceil(count / batch_size))
    settings = {"count": count, "size": size, "seed": seed, "start": start, "batch_size": batch_size}
    height, width = (frame, frame) if isinstance(frame, int) else frame
    data = f"scenes(cues='conflict', seed={seed}) {height}x{width}, scenes {start} to {start + count - 1}"
    about = provenance(device=str(device), images=count, data=data)
    values, axes = _values(torch.cat(decisions).numpy()), {"decision": _KINDS}
    errors = {"share": "standard_error", "shape_bias": "shape_bias_error"}
    errors |= {name: f"{name}_error" for name in ("shape_accuracy", "texture_accuracy")}
    return result("shape_texture", inner, values, axes, settings, about, errors, {})


def _values(decisions: np.ndarray) -> dict[str, np.ndarray]:
    each = (decisions == np.arange(len(_KINDS))[:, None]).astype(float)
    share, error = mean_and_error(each)
    single = each[:2].sum()
    bias = each[0].sum() / single if single else float("nan")
    values = {"share": share, "standard_error": error, "shape_bias": bias}
    values["shape_bias_error"] = np.sqrt(bias * (1 - bias) / single) if single else float("nan")
    for place, cue in enumerate(("shape", "texture")):
        values[f"{cue}_accuracy"], values[f"{cue}_accuracy_error"] = mean_and_error(each[place] + each[2])
    return {name: np.asarray(value) for name, value in values.items()}


def _classes(logits: Tensor) -> int:
    classes = int(logits.shape[1])
    if classes not in (len(CLASSES), len(SHAPES)):
        raise VitlabError(
            f"shape_texture expects a classifier of scenes with {len(CLASSES)} or {len(SHAPES)} classes; "
            f"this model has {classes}"
        )
    return classes


def _normalisation(model: nn.Module, batches: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    declared = isinstance(batches, Batches) or normalisation_of(model)
    return normalisation(model, batches, "shape_texture") if declared else (MEAN, STD)


def _size(model: nn.Module, batches: Iterable[Any] | None) -> tuple[int, int]:
    """Returns the input size (height, width) of the model."""
    item = next(iter(batches), None) if batches is not None else None
    images = item[0] if isinstance(item, (tuple, list)) else item
    if isinstance(images, Tensor) and images.ndim == 4:
        return int(images.shape[2]), int(images.shape[3])
    return describe(model).input_size
