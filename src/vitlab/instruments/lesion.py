"""Lesion study: change of accuracy when one unit of a model is removed (HDVW Figs. 10b, D.4).

    change = accuracy without the unit − accuracy, on the same images

Shape legend: n images, U units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.adapters.wrappers import unwrap
from vitlab.core.batches import reiterable
from vitlab.core.bounds import ImageCount
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.core.step_cache import step
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.predictions import Scores, concatenate, device_batches, device_of, predict, score
from vitlab.interventions.units import Conv, Unit, removed, units

CARD = Card(
    title="Change of accuracy when one MSA, MLP or Conv is removed",
    paper="HDVW Figs. 10b, D.4",
    cost="units + 1 forwards",
    inputs="labelled images",
    passes="several",
)


def paired_change(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Mean of after − before over the same n images, and its standard error.

    The standard error is that of paired differences, without the variance that both share.

    Args:
        before, after: (n,), n > 1.

    >>> change, error = paired_change(np.array([1.0, 1, 1, 0]), np.array([1.0, 0, 0, 0]))
    >>> change, round(error, 4)  # differences 0, −1, −1, 0: their deviation is √⅓
    (-0.5, 0.2887)
    """
    difference = after - before
    return float(difference.mean()), float(difference.std(ddof=1) / math.sqrt(len(difference)))


def measure(
    model: nn.Module, batches: Iterable[Any], *, conv: Conv = "kernel", images: ImageCount | None = None
) -> Measurement:
    """Change of accuracy and NLL when each unit is removed, one at a time.

    A unit is one MSA or MLP, whose residual branch is set to 0, or one Conv. HDVW removes one 3×3 convolution from a
    ResNet bottleneck: it is replaced by the identity, and for stride s by subsampling every s-th point. Convolutions
    that change the number of channels, and units without a skip path (LeViT's subsampling), are not removed.

    Args:
        model: a classifier; its state is restored afterwards.
        batches: yields (images, targets) in the same order each time; iterated once per unit.
        conv: in convolutional blocks, `"kernel"` removes each k×k convolution, `"block"` the whole block if its input
            and output have the same shape.
        images: number of images to use, at least 2. Default: all.

    Returns:
        `change` (unit), accuracy without the unit minus `baseline` (), and `standard_error` (unit) of this paired
        difference; `accuracy` (unit); `nll_change`, `nll_standard_error` (unit), the same for the negative
        log-likelihood, which needs fewer images; `block` and `stage` (unit), indices from 0. Units are
        named like `blocks.0 MSA`, `blocks.0 MLP`, `layer1.0.conv2 Conv`.
    """
    inner, device = unwrap(model), device_of(model)
    iterate = reiterable(batches, lambda items: device_batches(items, device, "lesion", images))
    with eval_mode(inner):
        removable = _units(inner, next(iter(iterate()))[0], conv)
        base = _scores(inner, iterate, None, 1 + len(removable))
        if len(base) < 2:
            raise VitlabError("lesion computes standard errors and needs at least two images; the data has one")
        values = _values(base, [_scores(inner, iterate, unit, 1 + len(removable)) for unit in removable], removable)
    dims = {name: ("unit",)[: value.ndim] for name, value in values.items()}
    about = provenance(device=str(device), images=len(base), data=getattr(batches, "fingerprint", ""))
    axes = {"unit": tuple(unit.name for unit in removable)}
    settings = {"conv": conv, "images": images}
    errors = {"change": "standard_error", "nll_change": "nll_standard_error"}
    return Measurement("lesion", type(inner).__name__, values, dims, axes, settings, about, errors)


def _scores(
    model: nn.Module, iterate: Callable[[], Iterable[tuple[Tensor, Any]]], unit: Unit | None, total: int
) -> Scores:
    """Scores of all images without the unit, or of the whole model if None; one step of the step cache."""
    instrument = f"lesion without {unit.name}" if unit else "lesion"

    def compute() -> dict[str, np.ndarray]:
        with removed(model, *([unit] if unit else [])):
            return asdict(concatenate([score(predict(model, x, instrument), targets) for x, targets in iterate()]))

    return Scores(**step(f"without {unit.name}" if unit else "whole", total, compute))


def _units(model: nn.Module, images: Tensor, conv: Conv) -> list[Unit]:
    anatomy = describe(model, (int(images.shape[-2]), int(images.shape[-1])))
    removable = units(model, anatomy, images, conv)
    if not removable:
        raise VitlabError(f"lesion: no MSA, MLP or Conv to remove in family {anatomy.family!r} with conv={conv!r}")
    return removable


def _values(base: Scores, without: list[Scores], removable: list[Unit]) -> dict[str, np.ndarray]:
    """Values of the measurement from the scores of the whole model and of the model without each unit."""
    accuracy = np.array([paired_change(base.correct, scores.correct) for scores in without])
    nll = np.array([paired_change(base.nll, scores.nll) for scores in without])
    return {
        "change": accuracy[:, 0],
        "standard_error": accuracy[:, 1],
        "accuracy": np.array([scores.correct.mean() for scores in without]),
        "baseline": np.array(base.correct.mean()),
        "nll_change": nll[:, 0],
        "nll_standard_error": nll[:, 1],
        "block": np.array([unit.block.index for unit in removable]),
        "stage": np.array([unit.block.stage for unit in removable]),
    }
