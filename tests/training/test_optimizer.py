"""Parameter groups of the optimiser, and the learning rate schedule."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cases import CASES
from vitlab.core.recipe import Optimizer
from vitlab.surgery import retrofit
from vitlab.training.optimizer import learning_rate, make_optimizer, set_learning_rate

CPU = torch.device("cpu")


def test_matrices_decay_and_biases_norms_scales_and_embeddings_do_not() -> None:
    model = retrofit(CASES[0].model(), "ScaledContextBroadcast()", at="mlp.out")
    model.patch_embed.proj.bias.requires_grad_(False)
    optimizer = make_optimizer(model, Optimizer(weight_decay=0.3), CPU)
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert len(decay) == sum(len(group["params"]) for group in optimizer.param_groups)
    for name, parameter in model.named_parameters():
        matrix = parameter.ndim > 1 and name not in ("pos_embed", "cls_token")
        expected = (0.3 if matrix else 0.0) if parameter.requires_grad else None
        assert decay.get(id(parameter)) == expected, name
    assert {p.ndim for p in model.parameters()} >= {1, 2, 3, 4}


@pytest.mark.parametrize(
    "given_settings",
    [Optimizer(lr=0.1, betas=(0.8, 0.9)), Optimizer("sgd", 0.1), Optimizer("sgd", 0.1, momentum=0.0)],
    ids=["adamw", "nesterov", "plain sgd"],
)
def test_two_steps_equal_the_formula(given_settings: Optimizer) -> None:
    """One decaying weight, gradients 2 and -1; torch's definitions, written out with plain numbers."""
    layer = nn.Linear(1, 1, bias=False)
    layer.weight.data.fill_(3.0)
    optimizer = make_optimizer(layer, given_settings, CPU)
    x, m, v, wd, lr = 3.0, 0.0, 0.0, 0.05, 0.1
    for step, gradient in enumerate((2.0, -1.0), 1):
        layer.weight.grad = torch.full((1, 1), gradient)
        optimizer.step()
        if given_settings.name == "adamw":
            m, v = 0.8 * m + 0.2 * gradient, 0.9 * v + 0.1 * gradient**2
            x = x * (1 - lr * wd) - lr * (m / (1 - 0.8**step)) / (math.sqrt(v / (1 - 0.9**step)) + 1e-8)
        else:
            momentum, g = given_settings.momentum, gradient + wd * x
            m = g if step == 1 else momentum * m + g
            x -= lr * (g + momentum * m)
        assert layer.weight.item() == pytest.approx(x, rel=1e-5)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 7), st.integers(1, 8), st.integers(0, 8))
def test_the_schedule_rises_in_a_line_and_falls_in_half_a_cosine(steps: int, epochs: int, warmup_epochs: int) -> None:
    given_settings = Optimizer(lr=0.5, warmup_epochs=warmup_epochs, warmup_lr=0.01, min_lr=0.002)
    rates = [learning_rate(given_settings, step, steps, epochs) for step in range(steps * epochs)]
    warmup = min(warmup_epochs, epochs) * steps
    differences = [b - a for a, b in zip([0.01, *rates], rates, strict=False)][:warmup]
    assert differences == pytest.approx([0.49 / max(1, warmup_epochs * steps)] * warmup)
    if warmup_epochs <= epochs and warmup:
        assert rates[warmup - 1] == pytest.approx(0.5)
    fall = rates[warmup:]
    assert all(a >= b - 1e-12 for a, b in pairwise(fall))
    if len(fall) > 1:
        assert fall[0] == pytest.approx(0.5) and fall[-1] == pytest.approx(0.002)
        # A cosine is odd around its middle: opposite ends have one sum.
        assert [a + b for a, b in zip(fall, reversed(fall), strict=True)] == pytest.approx([0.502] * len(fall))
        third = 0.002 + 0.498 * math.cos(math.pi / 6) ** 2  # (1 + cos x) / 2 = cos² (x / 2), at x = π / 3
        if (len(fall) - 1) % 3 == 0:
            assert fall[(len(fall) - 1) // 3] == pytest.approx(third)


def test_fractions_of_an_epoch_are_steps() -> None:
    given_settings = Optimizer(lr=1.0, warmup_epochs=0.5, warmup_lr=0.0, min_lr=0.0)
    rates = [learning_rate(given_settings, step, 4, 2) for step in range(8)]
    assert rates[:3] == pytest.approx([0.5, 1.0, 1.0]) and rates[-1] == pytest.approx(0.0)


def test_the_rate_of_all_groups_is_set_also_where_it_is_a_tensor() -> None:
    layer = nn.Linear(2, 2)
    optimizer = make_optimizer(layer, Optimizer(), CPU)
    set_learning_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]
    rate = torch.tensor(0.1)
    for group in optimizer.param_groups:
        group["lr"] = rate
    set_learning_rate(optimizer, 0.5)
    assert all(group["lr"] is rate for group in optimizer.param_groups) and rate.item() == 0.5


@pytest.mark.parametrize("power", [0.9, 1.0, 2.0])
def test_the_polynomial_schedule_is_that_of_torch(power: float) -> None:
    given_settings = Optimizer(lr=0.5, warmup_epochs=0, min_lr=0.0, schedule="poly", power=power)
    other = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    schedule = torch.optim.lr_scheduler.PolynomialLR(other, total_iters=12, power=power)
    for step in range(12):
        assert learning_rate(given_settings, step, 4, 3) == pytest.approx(schedule.get_last_lr()[0])
        other.step()
        schedule.step()


def test_the_polynomial_schedule_ends_above_its_minimum_and_begins_with_a_warm_up() -> None:
    given_settings = Optimizer(lr=1.0, warmup_epochs=1, warmup_lr=0.1, min_lr=0.2, schedule="poly", power=1.0)
    rates = [learning_rate(given_settings, step, 2, 5) for step in range(10)]
    scheduled = [0.2 + 0.8 * (1 - step / 10) for step in range(10)]
    assert rates[2:] == pytest.approx(scheduled[2:])
    assert rates[:2] == pytest.approx([0.1 + (scheduled[0] - 0.1) / 2, scheduled[1]])


def test_the_step_schedule_is_that_of_torch() -> None:
    given_settings = Optimizer(lr=0.5, warmup_epochs=0, min_lr=0.3, schedule="step", milestones=(2, 3))
    other = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    schedule = torch.optim.lr_scheduler.MultiStepLR(other, milestones=[2, 3], gamma=0.1)
    for epoch in range(5):
        for step in range(3):
            assert learning_rate(given_settings, 3 * epoch + step, 3, 5) == pytest.approx(schedule.get_last_lr()[0])
        other.step()
        schedule.step()


def test_the_rate_of_a_group_keeps_its_factor() -> None:
    model = CASES[0].model()
    for lr in (0.25, torch.tensor(0.25)):
        optimizer = make_optimizer(model, Optimizer(lr=0.25, layer_decay=0.5, head_lr=3.0), CPU)
        factors = [group["lr_scale"] for group in optimizer.param_groups]
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.25 * f for f in factors])
        for group in optimizer.param_groups:
            group["lr"] = lr.clone() if isinstance(lr, torch.Tensor) else lr
        set_learning_rate(optimizer, 0.1)
        assert [float(group["lr"]) for group in optimizer.param_groups] == pytest.approx([0.1 * f for f in factors])
        assert {0.5, 3.0} < set(factors)


@pytest.mark.gpu
def test_every_group_has_its_own_rate_on_cuda() -> None:
    model = CASES[0].model().cuda()
    optimizer = make_optimizer(model, Optimizer(lr=0.25, layer_decay=0.5), torch.device("cuda"))
    assert len({id(group["lr"]) for group in optimizer.param_groups}) == len(optimizer.param_groups)
    set_learning_rate(optimizer, 0.1)
    for group in optimizer.param_groups:
        assert group["lr"].item() == pytest.approx(0.1 * group["lr_scale"])


def test_a_backbone_exempts_its_own_parameters_from_weight_decay() -> None:
    model = nn.Module()
    model.backbone, model.decoder = CASES[0].model(), nn.Linear(2, 2)
    optimizer = make_optimizer(model, Optimizer(weight_decay=0.3), CPU)
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decay[id(model.backbone.pos_embed)] == 0 and decay[id(model.decoder.weight)] == 0.3
