"""Loss landscape: the loss on a plane through a model's weights (HDVW Figs. 1a, C.4a, C.7b; Li et al. 2018).

    L(w + α d₁ + β d₂), d₁ and d₂ random directions, each tensor scaled to the norm of its weight

Scaling one layer up and the next layer down does not change the function of a network, but would change the apparent
sharpness along random directions that are not scaled to the weights (Li et al., Sec. 4).

Shape legend: G grid points per side, B batch, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.batches import reiterable
from vitlab.core.bounds import Length, Positive, Range, Seed, Weight
from vitlab.core.errors import unknown
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.core.step_cache import step
from vitlab.instruments.shared.loss_surface import (
    L2,
    Weights,
    cross_entropy,
    l2_term,
    logits_at,
    seeded_mode,
    soft_target_batches,
    weights_of,
)

CARD = Card(
    title="Loss on a filter-normalised plane through the weights",
    paper="HDVW Figs. 1a, C.4a, C.7b",
    cost="441 forwards (21 × 21 points)",
    inputs="augmented training images",
    passes="several",
)

Normalisation = Literal["released", "filter"]


def normalise(direction: Tensor, weight: Tensor, form: Normalisation) -> Tensor:
    """Scale a direction to the norm of a weight: d ‖w‖ / (‖d‖ + ε).

    `filter`: the norm of each output filter, over all axes but the first, ε = 1e-10 (Li et al., Sec. 4). `released`:
    the norm over the first axis only, that is for each input coordinate, ε = 1e-7, as in HDVW's code. The direction of
    a weight of norm 0 is 0.

    Args:
        direction, weight: tensors of the same shape, (out, in, …).
        form: the norm to use.

    >>> weight, ones = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.ones(2, 2)
    >>> normalise(ones, weight, "filter")
    tensor([[3.5355, 3.5355],
            [0.0000, 0.0000]])
    >>> normalise(ones, weight, "released")
    tensor([[2.1213, 2.8284],
            [2.1213, 2.8284]])
    """
    if form not in get_args(Normalisation):
        raise unknown("normalisation", form, get_args(Normalisation))
    axes, epsilon = ([0], 1e-7) if form == "released" else (list(range(1, weight.ndim)), 1e-10)
    if not weight.ndim or not axes:  # a scalar, or a vector, whose filters are single numbers
        return direction * weight.abs() / (direction.abs() + epsilon)
    target, current = (tensor.square().sum(axes, keepdim=True).sqrt() for tensor in (weight, direction))
    return direction * target / (current + epsilon)


def random_direction(
    weights: Weights, generator: torch.Generator, form: Normalisation, *, vectors: bool, still: Sequence[str]
) -> dict[str, Tensor]:
    """A normalised Gaussian direction, drawn on the CPU so that it is the same on all devices.

    Args:
        weights: weights by name.
        generator: random number generator.
        form: form of the normalisation.
        vectors: if False, the direction is 0 for biases, norms and other weights with fewer than two axes.
        still: the direction is 0 for weights whose name contains one of these strings.

    >>> weights = {"fc.weight": torch.ones(2, 2), "fc.bias": torch.ones(2), "pos_embed": torch.ones(1, 2, 2)}
    >>> direction = random_direction(weights, torch.Generator(), "filter", vectors=False, still=["pos_embed"])
    >>> [name for name, part in direction.items() if part.any()]
    ['fc.weight']
    """
    direction = {}
    for name, weight in weights.items():
        drawn = torch.randn(weight.shape, generator=generator).to(weight)
        moves = (vectors or weight.ndim >= 2) and not any(word in name for word in still)
        direction[name] = normalise(drawn, weight, form) if moves else torch.zeros_like(weight)
    return direction


def _evaluations(points: int) -> str:
    return f"{points:,} points along each direction are {points**2:,} forwards for each batch"


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    points: Annotated[int, Range(2, 81, cost=_evaluations)] = 21,
    reach: Positive = 1.0,
    normalisation: Normalisation = "released",
    vectors: bool = False,
    still: Annotated[Sequence[str], Length(0, 1000)] = ("pos_embed", "relative_position"),
    l2: L2 = "norms",
    weight_decay: Weight = 0.05,
    seed: Seed = 0,
) -> Measurement:
    """The loss on a grid around the model's weights; the model itself is not modified.

    HDVW plots NLL + l2 on the whole augmented training set, mixup included, in evaluation mode. The convex shape of its
    figure is mostly the l2 term (the authors agree): both surfaces are returned. Their code also changes buffers; here
    only parameters change.

    Args:
        model: a classifier.
        batches: yields (images, targets) in the same order each time; iterated once per row of the grid. Targets are
            class indices, probabilities (B, C), or (labels, partners, share).
        points: G; if odd, the centre of the grid is the model itself.
        reach: the grid covers [-reach, reach]².
        normalisation: `"released"` or `"filter"`, see `normalise`.
        vectors, still: weights that do not change, see `random_direction`. Defaults: those of HDVW.
        l2: `"norms"`, as in the released code, `"squared"` or `"none"`; see `l2_term`.
        weight_decay: coefficient of the l2 term. Default: 0.05, as in HDVW's training.
        seed: random seed of the directions.

    Returns:
        `nll`, `l2` and `total` = nll + l2, each (first, second): the steps α and β along the two directions.
    """
    weights = weights_of(model)
    generator = torch.Generator().manual_seed(seed)
    pair = [random_direction(weights, generator, normalisation, vectors=vectors, still=still) for _ in range(2)]
    steps = np.linspace(-reach, reach, points)
    iterate = reiterable(batches, lambda items: soft_target_batches(model, weights, items))

    def row(alpha: float) -> dict[str, np.ndarray]:
        torch.manual_seed(seed)  # independent of earlier rows, which may be cached
        line = _Line({name: weight + alpha * pair[0][name] for name, weight in weights.items()}, pair[1], steps)
        surface, images = np.zeros(points), 0
        for inputs, targets in iterate():
            surface += len(inputs) * line.along(_nll(model, inputs, targets))
            images += len(inputs)
        penalty = line.along(lambda moved: l2_term(list(moved.values()), l2, weight_decay))
        return {"nll": surface / images, "l2": penalty, "images": np.array(images)}

    with seeded_mode(model, seed=seed), torch.no_grad():
        rows = [step(f"row {i}", points, partial(row, alpha)) for i, alpha in enumerate(steps.tolist())]
    nll, penalty = (np.stack([row_values[name] for row_values in rows]) for name in ("nll", "l2"))
    values, images = {"nll": nll, "l2": penalty, "total": nll + penalty}, int(rows[0]["images"])
    device = str(next(iter(weights.values())).device)
    return Measurement(
        "loss_landscape",
        type(model).__name__,
        values,
        dict.fromkeys(values, ("first", "second")),
        {"first": tuple(steps.tolist()), "second": tuple(steps.tolist())},
        {
            **{
                "points": points,
                "reach": reach,
                "normalisation": normalisation,
                "vectors": vectors,
                "still": list(still),
            },
            **{"l2": l2, "weight_decay": weight_decay, "seed": seed},
        },
        provenance(device=device, images=images, data=getattr(batches, "fingerprint", ""), seed=seed),
    )


def _nll(model: nn.Module, images: Tensor, targets: Tensor) -> Callable[[Weights], Tensor]:
    return lambda weights: cross_entropy(logits_at(model, weights, images), targets)


@dataclass(frozen=True)
class _Line:
    """G points w + β d on a line in weight space."""

    start: Weights
    direction: Weights
    steps: np.ndarray

    def along(self, value: Callable[[Weights], Tensor]) -> np.ndarray:
        """(G,) values of a function of the weights at each point."""
        values = []
        for beta in self.steps.tolist():
            values.append(value({name: weight + beta * self.direction[name] for name, weight in self.start.items()}))
        return torch.stack(values).double().cpu().numpy()
