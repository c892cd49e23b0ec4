"""Spectra against the dense Hessian of torch.func, and against curvlinops."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.func import functional_call, hessian
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cases import redraw
from vitlab.core.errors import VitlabError
from vitlab.core.step_cache import step_cache
from vitlab.instruments import measure


def perceptron() -> nn.Module:
    return redraw(nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.Tanh(), nn.Linear(6, 4)).double(), 3)


def transformer() -> nn.Module:
    """A ViT of 1,700 weights, with fused attention."""
    model = timm.models.VisionTransformer(
        img_size=8, patch_size=4, num_classes=5, embed_dim=8, depth=2, num_heads=2, mlp_ratio=2
    )
    assert model.blocks[0].attn.fused_attn
    return redraw(model, 1).double()


def convolution() -> nn.Module:
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(4 * 36, 5)]
    return redraw(nn.Sequential(*layers), 2).double()


def data(size: int, batches: int, length: int = 8, classes: int = 4, seed: int = 0) -> list:
    generator = torch.Generator().manual_seed(seed)
    shape = (size, 3, length, length)
    return [
        (torch.randn(shape, generator=generator).double(), torch.randint(classes, (size,), generator=generator))
        for _ in range(batches)
    ]


def dense(
    model: nn.Module, images: torch.Tensor, labels: torch.Tensor, count: int, l2: str, decay: float
) -> np.ndarray:
    names, parameters = zip(*((n, p.detach()) for n, p in model.named_parameters()), strict=True)
    sizes = [p.numel() for p in parameters]

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = {n: f.view_as(p) for n, p, f in zip(names, parameters, flat.split(sizes), strict=True)}
        total = F.cross_entropy(functional_call(model, parts, (images,)), labels)
        if l2 == "norms":
            total = total + decay * sum(part.norm() for part in parts.values())
        return total

    with sdpa_kernel(SDPBackend.MATH):
        matrix = hessian(loss)(torch.cat([p.flatten() for p in parameters])).numpy()
    values = np.linalg.eigvalsh(matrix) + (decay if l2 == "squared" else 0.0)
    return values[np.argsort(-np.abs(values))][:count]


@pytest.mark.parametrize(("build", "length", "l2"), [
    (perceptron, 4, "none"), (perceptron, 4, "squared"), (perceptron, 4, "norms"), (transformer, 8, "squared"),
])  # fmt: skip
def test_dense_hessian(build, length: int, l2: str) -> None:
    model, batches = build().eval(), data(16, 2, length)
    found = measure("hessian_spectrum", model, batches, count=8, l2=l2, weight_decay=0.01)
    for row, (images, labels) in zip(found.values["eigenvalues"], batches, strict=True):
        np.testing.assert_allclose(row, dense(model, images, labels, 8, l2, 0.01), rtol=1e-3)
    assert (found.values["eigenvalues"] < 0).any()
    assert found.values["converged"].all()
    loss = F.cross_entropy(model(batches[0][0]), batches[0][1])
    if l2 == "none":
        assert found.values["loss"][0] == pytest.approx(loss.item(), rel=1e-6)


def test_float32_is_within_one_percent() -> None:
    model, batches = transformer().eval(), data(16, 1)
    expected = dense(model, *batches[0], 5, "none", 0.0)
    found = measure("hessian_spectrum", model.float(), [(batches[0][0].float(), batches[0][1])], l2="none")
    np.testing.assert_allclose(found.values["eigenvalues"][0], expected, rtol=0.01)


def test_curvlinops() -> None:
    curvlinops = pytest.importorskip("curvlinops")
    from scipy.sparse.linalg import eigsh

    model, batches = transformer().eval(), data(16, 1)
    with sdpa_kernel(SDPBackend.MATH):
        operator = curvlinops.HessianLinearOperator(model, nn.CrossEntropyLoss(), list(model.parameters()), batches)
        start = np.random.default_rng(0).standard_normal(operator.shape[1]).astype(np.float32)
        values = eigsh(operator.to_scipy(), k=5, which="LM", v0=start, return_eigenvectors=False)
    found = measure("hessian_spectrum", model, batches, l2="none").values["eigenvalues"][0]
    np.testing.assert_allclose(sorted(found), sorted(values), rtol=1e-3)


def test_several_mini_batches_at_once() -> None:
    model, batches = transformer(), data(12, 2)
    one = measure("hessian_spectrum", model, batches, batch_size=4, together=1)
    three = measure("hessian_spectrum", model, batches, batch_size=4, together=3)
    assert one.values["eigenvalues"].shape == three.values["eigenvalues"].shape == (6, 5)
    np.testing.assert_allclose(one.values["eigenvalues"], three.values["eigenvalues"], rtol=1e-4)
    pool = one.values["eigenvalues"]
    assert one.values["negative_proportion"] == (pool < 0).sum() / 30
    assert one.values["positive_average"] == pytest.approx(pool[pool > 0].mean())


def test_progress_moves_inside_a_mini_batch() -> None:
    reports: list[tuple[str, str]] = []
    with step_cache(None, lambda name, total, state: reports.append((name, state))):
        found = measure("hessian_spectrum", perceptron(), data(4, 2, 4), batch_size=4)
    inner = [name for name, state in reports if state == "inside"]
    products = [int(count) for count in found.values["products"]]
    assert min(products) > 1 and inner == [
        f"mini-batch {which} of 2, product {number}" for which in (1, 2) for number in range(1, products[which - 1] + 1)
    ]


def test_progress_names_the_mini_batches_of_a_group() -> None:
    reports: list[str] = []
    with step_cache(None, lambda name, total, state: reports.append(name)):
        measure("hessian_spectrum", perceptron(), data(4, 3, 4), batch_size=4, together=2)
    assert {name.partition(",")[0] for name in reports} == {"mini-batches 1 to 2 of 3", "mini-batch 3 of 3"}


def test_training_mode_falls_back_without_vmap() -> None:
    model, batches = convolution(), data(8, 2)
    found = measure("hessian_spectrum", model, batches, batch_size=8, training=True, together=2)
    assert found.values["eigenvalues"].shape == (2, 5)
    evaluated = measure("hessian_spectrum", model, batches, batch_size=8, together=2)
    assert not np.allclose(found.values["eigenvalues"], evaluated.values["eigenvalues"], rtol=0.01)


def test_mixed_labels_equal_probabilities() -> None:
    model, ((images, labels),) = perceptron(), data(16, 1, 4)
    share = torch.full((16,), 0.3)
    soft = 0.3 * F.one_hot(labels, 4) + 0.7 * F.one_hot(labels.flip(0), 4)
    mixed, probable = (
        measure("hessian_spectrum", model, [(images, targets)]).values["eigenvalues"]
        for targets in ((labels, labels.flip(0), share), soft)
    )
    np.testing.assert_allclose(mixed, probable, rtol=1e-5)


def test_frozen_parameters_are_excluded() -> None:
    model, batches = perceptron(), data(16, 1, 4)
    for parameter in model[1].parameters():
        parameter.requires_grad_(False)
    head, features = copy.deepcopy(model[3]), model[:3](batches[0][0])
    found = measure("hessian_spectrum", model, batches, l2="none").values["eigenvalues"][0]
    np.testing.assert_allclose(found, dense(head, features.detach(), batches[0][1], 5, "none", 0.0), rtol=1e-3)


@pytest.mark.parametrize("training", [False, True])
def test_does_not_change_the_model(training: bool) -> None:
    model = convolution().train()
    model[2].eval()
    model[0].bias.requires_grad_(False)
    model[5].weight.grad = torch.ones_like(model[5].weight)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with torch.no_grad():  # the caller may have switched gradients off
        measure("hessian_spectrum", model, data(8, 1), batch_size=8, training=training, count=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model] == [True, True, False, True, True, True]
    assert model[5].weight.grad.eq(1).all()
    assert model[0].weight.grad is None
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["0.bias"]


def test_bad_input() -> None:
    model, batches = perceptron(), data(8, 2, 4)
    for settings, message in (
        ({}, "invalid batch_size=16; no batch has more than 8"),
        ({"batch_size": 8, "mini_batches": 3}, "invalid mini_batches=3; the batches have only 2"),
        ({"batch_size": 8, "count": 999}, "expected at most 322"),
        ({"batch_size": 0}, "an integer from 1"),
        ({"l2": "l1", "batch_size": 8}, "expected one of 'none', 'squared', 'norms'"),
    ):
        with pytest.raises(VitlabError, match=message):
            measure("hessian_spectrum", model, batches, **settings)
    with pytest.raises(VitlabError, match="not finite"):
        measure("hessian_spectrum", model, [(torch.full((16, 48), float("nan")), batches[0][1].repeat(2))])
    with pytest.raises(VitlabError, match="requires gradients"):
        measure("hessian_spectrum", perceptron().requires_grad_(False), batches, batch_size=8)


def test_vectors_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitlab.core.machine_memory.available_memory", lambda: 40.0 * 322 * 8 - 1)
    with pytest.raises(
        VitlabError, match="40 vectors of 322 weights needs about 0.1 MB of memory; .* use a smaller basis"
    ):
        measure("hessian_spectrum", perceptron(), data(8, 2, 4), batch_size=8)
    measure("hessian_spectrum", perceptron(), data(8, 2, 4), batch_size=8, basis=20, count=2, limit=20)
