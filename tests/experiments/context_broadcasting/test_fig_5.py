"""CB Fig. 5: the claims hold for the instrument's own closed forms, and not for altered ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from experiments.context_broadcasting.arms import parts
from experiments.synthetic import layered
from vitlab.core.experiment import Claim, Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.context_broadcasting import fig_5


def gradient(
    diagonal: float = 0.5, last: float = 0.8, mean: float = 0.7, correlation: float = 0.0, bound: float = 0.75
) -> Measurement:
    plane = np.full((3, 3), 0.4)
    np.fill_diagonal(plane, diagonal)
    return layered(
        "softmax_gradient",
        {"layer": ("a",), "head": (0, 1)},
        plane_norm=(("x1", "x2"), plane),
        curve_norm=(("point",), [0.0, 0.5, last]),
        mean=(("layer", "head"), [[0.1, mean]]),
        bound=(("layer",), [bound]),
        correlation=(("layer", "head"), [[correlation - 0.2, correlation + 0.2]]),
    )


def example(claim: Claim, effects: Sequence[float]) -> Results:
    made = {
        "steepest at x1 = x2": lambda effect: gradient(diagonal=0.5 if effect else 0.4),
        "grows towards uniform": lambda effect: gradient(last=0.8 if effect else 0.5),
        "bound": lambda effect: gradient(mean=0.7 if effect else 0.76),
        "denser is steeper": lambda effect: gradient(correlation=effect),
    }[claim.name]
    return parts("ViT", [made(effect) for effect in effects])


@pytest.mark.parametrize("point", [(0, 1), (2, 0)])
def test_one_steep_point_off_the_diagonal_refutes_the_claim(point: tuple[int, int]) -> None:
    found = gradient()
    found.values["plane_norm"][point] = 0.6
    assert fig_5.check(parts("ViT", [found]))[0].outcome == "does not hold"


def test_the_closed_forms_hold_for_softmax() -> None:
    """Against the Jacobian of torch's softmax."""
    import torch

    x = torch.linspace(-3, 3, 7, dtype=torch.float64)
    norms = np.array(
        [
            [
                torch.linalg.matrix_norm(
                    torch.autograd.functional.jacobian(lambda s: s.softmax(0), torch.stack((first, second))), "nuc"
                ).item()
                for second in x
            ]
            for first in x
        ]
    )
    found = gradient()
    plane = layered("softmax_gradient", {}, plane_norm=(("x1", "x2"), norms.round(12)))
    both = Measurement(found.kind, "softmax", {**found.values, **plane.values}, {**found.dims, **plane.dims})
    assert fig_5.check(parts("ViT", [both]))[0].outcome == "holds"
