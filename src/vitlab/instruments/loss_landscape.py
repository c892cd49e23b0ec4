"""Loss landscape: the loss on a plane through a model's weights (HDVW Figs. 1a, C.4a, C.7b; Li et al. 2018).

    L(w + α d₁ + β d₂), d₁ and d₂ random directions with the norms of the weights, tensor by tensor

Scaling a layer up and the next one down leaves a network's function as it is; random directions without the weights'
norms would show such a copy as sharper or flatter (Li et al., Sec. 4).

Shape legend: G points along each side of the grid, B batch, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.batches import reiterable
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.core.step_cache import step
from vitlab.instruments.shared.loss_surface import (
    L2,
    Weights,
    cross_entropy,
    l2_term,
    labelled,
    predict,
    undisturbed,
    weights_of,
)

CARD = Card(
    title="Loss on a filter-normalised plane through the weights",
    paper="HDVW Figs. 1a, C.4a, C.7b",
    cost="441 forwards (21 × 21 points)",
    needs=("labels", "augmented"),
)

Normalisation = Literal["released", "filter"]


def normalise(direction: Tensor, weight: Tensor, form: Normalisation) -> Tensor:
    """Give a direction the norms of a weight: d ‖w‖ / (‖d‖ + ε).

    `filter`: the norm of each output filter, over all axes but the first, ε = 1e-10 (Li et al., Sec. 4). `released`:
    over the first axis only, that is for each input coordinate, ε = 1e-7, as HDVW's code does. A weight of norm 0
    does not move.

    Args:
        direction, weight: of one shape, (out, in, …).
        form: which norm.

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
    if not weight.ndim or not axes:  # a scalar, or the filters of a vector, which are numbers
        return direction * weight.abs() / (direction.abs() + epsilon)
    target, given = (tensor.square().sum(axes, keepdim=True).sqrt() for tensor in (weight, direction))
    return direction * target / (given + epsilon)


def random_direction(
    weights: Weights, generator: torch.Generator, form: Normalisation, *, vectors: bool, still: Sequence[str]
) -> dict[str, Tensor]:
    """A normalised Gaussian direction, drawn on the CPU so that all devices have the same.

    Args:
        weights: by name.
        generator: draws it.
        form: of the normalisation.
        vectors: whether biases, norms and other weights with fewer than two axes move.
        still: weights whose name contains one of these do not move.

    >>> weights = {"fc.weight": torch.ones(2, 2), "fc.bias": torch.ones(2), "pos_embed": torch.ones(1, 2, 2)}
    >>> found = random_direction(weights, torch.Generator(), "filter", vectors=False, still=["pos_embed"])
    >>> [name for name, direction in found.items() if direction.any()]
    ['fc.weight']
    """
    direction = {}
    for name, weight in weights.items():
        drawn = torch.randn(weight.shape, generator=generator).to(weight)
        moves = (vectors or weight.ndim >= 2) and not any(word in name for word in still)
        direction[name] = normalise(drawn, weight, form) if moves else torch.zeros_like(weight)
    return direction


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    points: int = 21,
    reach: float = 1.0,
    normalisation: Normalisation = "released",
    vectors: bool = False,
    still: Sequence[str] = ("pos_embed", "relative_position"),
    l2: L2 = "norms",
    weight_decay: float = 0.05,
    seed: int = 0,
) -> Measurement:
    """The loss on a grid of weights around the model's own, which stay untouched: those of the grid are copies.

    HDVW draws NLL + l2 on the whole augmented training set, mixup included, in evaluation mode. Its bowl is mostly
    the l2 term (the authors agree): both surfaces are returned. Their code also moves buffers; here only parameters
    move.

    Args:
        model: a classifier.
        batches: yields (images, targets), in the same order each time: walked once for each row of the grid; targets
            are class indices, probabilities (B, C), or (labels, partners, share).
        points: G; an odd number has the model itself at the centre.
        reach: the grid covers [-reach, reach]².
        normalisation: `"released"` or `"filter"`, see `normalise`.
        vectors, still: what does not move, see `random_direction`; the defaults are HDVW's.
        l2: `"norms"`, as released, `"squared"` or `"none"`; see `l2_term`.
        weight_decay: of the l2 term; 0.05 is what HDVW trains with.
        seed: of the directions.

    Returns:
        `nll`, `l2` and `total` = nll + l2, each (first, second): the steps α and β along the two directions.
    """
    if points < 2 or not reach > 0:
        raise VitlabError(
            f"a landscape of points={points} and reach={reach} has no area; give points >= 2 and reach > 0"
        )
    weights = weights_of(model)
    generator = torch.Generator().manual_seed(seed)
    pair = [random_direction(weights, generator, normalisation, vectors=vectors, still=still) for _ in range(2)]
    steps = np.linspace(-reach, reach, points)
    walk = reiterable(batches, lambda those: labelled(model, weights, those))

    def row(alpha: float) -> dict[str, np.ndarray]:
        torch.manual_seed(seed)  # a row does not depend on those before it, which may be kept from an earlier run
        line = _Line({name: weight + alpha * pair[0][name] for name, weight in weights.items()}, pair[1], steps)
        surface, images = np.zeros(points), 0
        for inputs, targets in walk():
            surface += len(inputs) * line.along(_nll(model, inputs, targets))
            images += len(inputs)
        penalty = line.along(lambda moved: l2_term(list(moved.values()), l2, weight_decay))
        return {"nll": surface / images, "l2": penalty, "images": np.array(images)}

    with undisturbed(model, seed=seed), torch.no_grad():
        rows = [step(f"row {i}", points, partial(row, alpha)) for i, alpha in enumerate(steps.tolist())]
    nll, penalty = (np.stack([found[name] for found in rows]) for name in ("nll", "l2"))
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
    return lambda weights: cross_entropy(predict(model, weights, images), targets)


@dataclass(frozen=True)
class _Line:
    """Points w + β d of a line in the space of weights, G of them."""

    start: Weights
    direction: Weights
    steps: np.ndarray

    def along(self, value: Callable[[Weights], Tensor]) -> np.ndarray:
        """(G,) a function of the weights at each point."""
        found = []
        for beta in self.steps.tolist():
            found.append(value({name: weight + beta * self.direction[name] for name, weight in self.start.items()}))
        return torch.stack(found).double().cpu().numpy()
