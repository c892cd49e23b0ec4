"""Landscapes against closed forms, and against a copy of the model with changed weights."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F

from cases import redraw
from vitlab.core.errors import VitlabError
from vitlab.instruments import measure
from vitlab.instruments.loss_landscape import normalise, random_direction


def transformer() -> nn.Module:
    model = timm.models.VisionTransformer(img_size=8, patch_size=4, num_classes=5, embed_dim=8, depth=1, num_heads=2)
    return redraw(model, 1)


def data(sizes: tuple[int, ...] = (3, 2), seed: int = 0) -> list:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(n, 3, 8, 8, generator=generator), torch.randint(5, (n,), generator=generator)) for n in sizes]


@pytest.mark.parametrize("form", ["released", "filter"])
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2, 2), (1, 1, 6)])
def test_norms_against_a_loop(form: str, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, direction = (torch.randn(shape, generator=generator) for _ in range(2))
    weight[0] *= 0.0 if shape[0] > 1 else 1.0
    found, flat = normalise(direction, weight, form), weight.reshape(shape[0], -1)
    given = direction.reshape(shape[0], -1)
    for i in range(flat.shape[0] if form == "filter" else flat.shape[1]):
        pick = (lambda t, i=i: t[i]) if form == "filter" else (lambda t, i=i: t[:, i])
        scale = math.sqrt((pick(flat) ** 2).sum()) / math.sqrt((pick(given) ** 2).sum())
        torch.testing.assert_close(pick(found.reshape(shape[0], -1)), pick(given) * scale)


def test_scalars_and_vectors_can_move() -> None:
    weights = {"temperature": torch.tensor(2.0), "bias": torch.tensor([3.0, -4.0])}
    for form in ("released", "filter"):
        moved = random_direction(weights, torch.Generator().manual_seed(0), form, vectors=True, still=())
        assert moved["temperature"].abs() == pytest.approx(2.0)
        assert moved["bias"].norm() == pytest.approx(5.0)
        stays = random_direction(weights, torch.Generator().manual_seed(0), form, vectors=False, still=())
        assert not any(direction.any() for direction in stays.values())


def test_closed_form_of_a_linear_model() -> None:
    """Two classes, one image: nll = log(1 + exp(−margin)), margin linear and squared l2 quadratic in (α, β)."""
    model, image = nn.Linear(3, 2, bias=False).double(), torch.tensor([[1.0, -2.0, 0.5]]).double()
    found = measure("loss_landscape", model, [(image, torch.tensor([1]))], points=5, reach=2.0, l2="squared", seed=3)
    generator, weights = torch.Generator().manual_seed(3), {"weight": model.weight.detach()}
    first, second = (
        random_direction(weights, generator, "released", vectors=False, still=())["weight"].numpy() for _ in range(2)
    )
    for i, alpha in enumerate([-2, -1, 0, 1, 2]):
        for j, beta in enumerate([-2, -1, 0, 1, 2]):
            weight = weights["weight"].numpy() + alpha * first + beta * second
            margin = (weight[1] - weight[0]) @ image.numpy()[0]
            assert found.values["nll"][i, j] == pytest.approx(np.log1p(np.exp(-margin)), rel=1e-9)
            assert found.values["l2"][i, j] == pytest.approx(0.025 * (weight**2).sum(), rel=1e-9)
    np.testing.assert_allclose(found.values["total"], found.values["nll"] + found.values["l2"])
    assert found.axes["first"] == (-2, -1, 0, 1, 2)


@pytest.mark.parametrize("form", ["released", "filter"])
def test_losses_equal_those_of_a_moved_copy(form: str) -> None:
    model = transformer().eval()
    found = measure("loss_landscape", model, data(), points=3, normalisation=form, weight_decay=0.1)
    generator = torch.Generator().manual_seed(0)
    weights, still = dict(model.named_parameters()), ("pos_embed", "relative_position")
    first, second = (random_direction(weights, generator, form, vectors=False, still=still) for _ in range(2))
    images, labels = (torch.cat(part) for part in zip(*data(), strict=True))
    with torch.no_grad():
        for i, j in ((0, 0), (1, 1), (2, 1), (0, 2)):
            other = copy.deepcopy(model)
            for name, parameter in other.named_parameters():
                parameter += (i - 1) * first[name] + (j - 1) * second[name]
            assert found.values["nll"][i, j] == pytest.approx(F.cross_entropy(other(images), labels).item(), rel=1e-4)
            norms = sum(parameter.norm().item() for parameter in other.parameters())
            assert found.values["l2"][i, j] == pytest.approx(0.1 * norms, rel=1e-4)


def test_a_fresh_model_with_zero_weights_stays_finite() -> None:
    model = transformer()
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.blocks[0].mlp.fc2.weight)
    found = measure("loss_landscape", model, data(), points=3)
    assert all(np.isfinite(value).all() for value in found.values.values())
    assert found.values["nll"][1, 1] == pytest.approx(np.log(5), rel=0.05)


def test_the_plane_depends_on_the_seed() -> None:
    one, same, other = (
        measure("loss_landscape", transformer(), data(), points=3, seed=seed).values["nll"] for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert one[1, 1] == other[1, 1]
    assert not np.allclose(one, other)


def test_does_not_change_the_model() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5)
    ).train()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    addresses = [parameter.data_ptr() for parameter in model.parameters()]
    measure("loss_landscape", model, data(), points=3)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [parameter.data_ptr() for parameter in model.parameters()] == addresses
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_bad_input() -> None:
    for settings, message in (
        ({"points": 1}, "an integer from 2 to 81"),
        ({"reach": 0.0}, "a number above 0"),
        ({"normalisation": "layer"}, "'released' or 'filter'"),
        ({"l2": "l1"}, "one of 'none', 'squared', 'norms'"),
    ):
        with pytest.raises(VitlabError, match=message):
            measure("loss_landscape", transformer(), data(), **settings)
    with pytest.raises(VitlabError, match="needs labels"):
        measure("loss_landscape", transformer(), [data()[0][0]], points=3)
    with pytest.raises(VitlabError, match="not finite"):
        model = transformer()
        nn.init.constant_(model.head.bias, float("nan"))
        measure("loss_landscape", model, data(), points=3)


def test_grids_that_take_too_long_are_refused_with_their_cost() -> None:
    with pytest.raises(VitlabError, match=r"from 2 to 81; 100 points along each direction are 10,000 forwards"):
        measure("loss_landscape", transformer(), data(), points=100)
