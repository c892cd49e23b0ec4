"""Lesion study: how much accuracy a model loses without one of its units (HDVW Figs. 10b, D.4).

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
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.core.step_cache import step
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.predictions import Scores, device_of, labelled, predict, score, together
from vitlab.instruments.shared.unit_removal import Conv, Unit, removed, units

CARD = Card(
    title="Change of accuracy when one MSA, MLP or Conv is removed",
    paper="HDVW Figs. 10b, D.4",
    cost="units + 1 forwards",
    needs=("labels",),
)


def paired_change(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Mean of after − before over the same n images, and its standard error.

    The images are paired: what makes an image hard for both does not count as noise.

    Args:
        before, after: (n,), n > 1.

    >>> change, error = paired_change(np.array([1.0, 1, 1, 0]), np.array([1.0, 0, 0, 0]))
    >>> change, round(error, 4)  # differences 0, −1, −1, 0: their deviation is √⅓
    (-0.5, 0.2887)
    """
    difference = after - before
    return float(difference.mean()), float(difference.std(ddof=1) / math.sqrt(len(difference)))


def measure(
    model: nn.Module, batches: Iterable[Any], *, conv: Conv = "kernel", images: int | None = None
) -> Measurement:
    """Remove one unit after the other, each alone, and count what is lost.

    A unit is one MSA or MLP, whose residual branch is set to 0, or one Conv. HDVW removes one 3×3 convolution from a
    bottleneck of ResNet: it passes its input on, and where it has a stride, every s-th point. Convolutions that change
    the number of channels, and units without a skip path (LeViT's subsampling), are not removed.

    Args:
        model: a classifier; it is left as it was found.
        batches: yields (images, targets), in the same order each time: walked once for each unit.
        conv: in blocks of convolutions, `"kernel"` removes each k×k convolution, `"block"` the whole block where its
            input and output have the same shape.
        images: use the first so many; all by default, two at least.

    Returns:
        `change` (unit), accuracy without the unit minus `baseline` (), and `standard_error` (unit) of this paired
        difference; `accuracy` (unit); `nll_change`, `nll_standard_error` (unit), the same of the negative
        log-likelihood, which shows what too few images hide; `block` and `stage` (unit), numbers from 0. Units are
        named like `blocks.0 MSA`, `blocks.0 MLP`, `layer1.0.conv2 Conv`.
    """
    inner, device = unwrap(model), device_of(model)
    walk = reiterable(batches, lambda those: labelled(those, device, "lesion", images))
    with eval_mode(inner):
        chosen = _units(inner, next(iter(walk()))[0], conv)
        base = _scores(inner, walk, None, 1 + len(chosen))
        if len(base) < 2:
            raise VitlabError("lesion compares accuracies and needs at least two images; one was given")
        values = _values(base, [_scores(inner, walk, unit, 1 + len(chosen)) for unit in chosen], chosen)
    dims = {name: ("unit",)[: value.ndim] for name, value in values.items()}
    about = provenance(device=str(device), images=len(base), data=getattr(batches, "fingerprint", ""))
    axes = {"unit": tuple(unit.name for unit in chosen)}
    settings = {"conv": conv, "images": images}
    errors = {"change": "standard_error", "nll_change": "nll_standard_error"}
    return Measurement("lesion", type(inner).__name__, values, dims, axes, settings, about, errors)


def _scores(
    model: nn.Module, walk: Callable[[], Iterable[tuple[Tensor, Any]]], unit: Unit | None, total: int
) -> Scores:
    """How well all images are predicted without the unit, or by the whole model: one step of the step cache."""
    who = f"lesion without {unit.name}" if unit else "lesion"

    def find() -> dict[str, np.ndarray]:
        with removed(model, *([unit] if unit else [])):
            return asdict(together([score(predict(model, x, who), targets) for x, targets in walk()]))

    return Scores(**step(f"without {unit.name}" if unit else "whole", total, find))


def _units(model: nn.Module, images: Tensor, conv: Conv) -> list[Unit]:
    anatomy = describe(model, (int(images.shape[-2]), int(images.shape[-1])))
    found = units(model, anatomy, images, conv)
    if not found:
        raise VitlabError(f"lesion finds no MSA, MLP or Conv to remove in family {anatomy.family!r} with conv={conv!r}")
    return found


def _values(base: Scores, cut: list[Scores], chosen: list[Unit]) -> dict[str, np.ndarray]:
    accuracy = np.array([paired_change(base.correct, one.correct) for one in cut])
    nll = np.array([paired_change(base.nll, one.nll) for one in cut])
    return {
        "change": accuracy[:, 0],
        "standard_error": accuracy[:, 1],
        "accuracy": np.array([one.correct.mean() for one in cut]),
        "baseline": np.array(base.correct.mean()),
        "nll_change": nll[:, 0],
        "nll_standard_error": nll[:, 1],
        "block": np.array([unit.block.index for unit in chosen]),
        "stage": np.array([unit.block.stage for unit in chosen]),
    }
