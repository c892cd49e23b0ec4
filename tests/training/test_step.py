"""One training step: against a manual step, with accumulation, compiled, and captured."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.utils import ModelEmaV3
from torch import Tensor, nn
from torch.overrides import BaseTorchFunctionMode

from cases import CASES
from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Optimizer, Recipe, change
from vitlab.kernels.attention import ShortAttention
from vitlab.training.state import make_state
from vitlab.training.step import _short_attention, capture, make_step

SGD = Recipe("timm/x", "x", batch_size=8, optimizer=Optimizer("sgd", lr=0.1, momentum=0.0, weight_decay=0.0))
ADAM = Recipe("timm/x", "x", batch_size=8, optimizer=Optimizer(lr=1e-3))


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(6, 3).double()


def batch(seed: int = 0, dim: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, dim, generator=generator, dtype=torch.float64), torch.arange(8) % 3


def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def step_of(recipe: Recipe, model: nn.Module, ema: ModelEmaV3 | None = None, objective: object = loss) -> object:
    return make_step(recipe, model, objective, make_state(recipe, model, next(model.parameters()).device, ema))


@pytest.mark.parametrize("accumulate", [1, 2, 4, 8])
def test_pieces_give_the_step_of_the_whole_batch(accumulate: int) -> None:
    model, twin = linear(), linear()
    expected = loss(twin, batch())
    gradients = torch.autograd.grad(expected, list(twin.parameters()))
    value = step_of(change(SGD, {"accumulate": accumulate}), model)(batch())
    assert value.item() == pytest.approx(expected.item(), abs=1e-6) and not value.requires_grad
    for ours, theirs, gradient in zip(model.parameters(), twin.parameters(), gradients, strict=True):
        assert torch.allclose(ours, theirs - 0.1 * gradient, atol=1e-12)


@pytest.mark.parametrize(
    ("device", "changes", "used"),
    [
        ("cuda", {}, True),
        ("cpu", {}, False),
        ("cuda", {"compile": False}, False),
        ("cuda", {"precision": "float32"}, False),
        ("cuda", {"precision": "float16"}, True),
    ],
)
def test_where_a_step_uses_short_attention(device: str, changes: dict[str, object], used: bool) -> None:
    recipe = change(change(SGD, {"compile": True, "precision": "bfloat16"}), changes)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, embed_dim=16, num_heads=1)
    assert isinstance(_short_attention(recipe, model, torch.device(device)), ShortAttention) == used
    with BaseTorchFunctionMode():  # such as a recorder of attention
        assert not isinstance(_short_attention(recipe, model, torch.device(device)), ShortAttention)
    model.set_grad_checkpointing(True)
    assert not isinstance(_short_attention(recipe, model, torch.device(device)), ShortAttention)


def test_a_batch_that_cannot_be_divided_equally_raises() -> None:
    """Five images in four pieces would be three pieces, and the loss three quarters of what it is."""
    images, labels = batch()
    with pytest.raises(VitlabError, match="a batch of 5 images cannot be divided equally into accumulate=4 steps"):
        step_of(change(SGD, {"accumulate": 4}), linear())((images[:5], labels[:5]))


@pytest.mark.parametrize("clip", [1e-3, 0.1, 100.0])
def test_clipping_is_that_of_torch(clip: float) -> None:
    model, twin = linear(), linear()
    step_of(change(SGD, {"optimizer.clip": clip}), model)(batch())
    loss(twin, batch()).backward()
    norm = nn.utils.clip_grad_norm_(twin.parameters(), clip)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter -= 0.1 * parameter.grad
    assert (norm > clip) == (clip < 1)  # both sides of the threshold are tried
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_averaged_weights_follow_the_closed_form() -> None:
    model = linear()
    ema = ModelEmaV3(model, decay=0.8)
    average = model.weight.detach().clone()
    step = step_of(SGD, model, ema)
    for seed in range(3):
        step(batch(seed))
        average = 0.8 * average + 0.2 * model.weight.detach()
    assert torch.allclose(ema.module.weight, average, atol=1e-12)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_loss_is_computed_in_the_recipes_precision(precision: str) -> None:
    seen = []

    def spy(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        logits = model(batch[0].float())
        seen.append(logits.dtype)
        return F.cross_entropy(logits.float(), batch[1])

    model = linear().float()
    step_of(change(SGD, {"precision": precision}), model, objective=spy)(batch())
    assert seen == [getattr(torch, precision)] and model.weight.dtype == torch.float32


def test_frozen_parameters_stay_and_gradients_do_not_add_up_over_steps() -> None:
    model, twin = linear(), linear()
    model.bias.requires_grad_(False)
    step = step_of(SGD, model)
    for seed in range(2):
        step(batch(seed))
        gradient = torch.autograd.grad(loss(twin, batch(seed)), twin.weight)[0]
        twin.weight.data -= 0.1 * gradient
    assert torch.equal(model.bias, twin.bias) and torch.allclose(model.weight, twin.weight, atol=1e-12)


def vit_losses(recipe: Recipe, device: str = "cpu", steps: int = 3) -> list[float]:
    model = CASES[0].model().train().to(device)
    step = step_of(recipe, model)
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(8, 3, 32, 32, generator=generator).to(device), (torch.arange(8) % 7).to(device)
    return [float(step((images, labels))) for _ in range(steps)]


def test_the_compiled_step_is_one_graph_of_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo without a backend: the graphs run unchanged, so the numbers must be equal."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager", fullgraph=True))
    assert vit_losses(change(ADAM, {"compile": True})) == vit_losses(ADAM)


@pytest.mark.slow
def test_the_inductor_gives_the_same_losses() -> None:
    eager, compiled = vit_losses(ADAM), vit_losses(change(ADAM, {"compile": True}))
    assert compiled == pytest.approx(eager, abs=1e-4) and eager[-1] < eager[0]


@pytest.mark.gpu
def test_a_captured_step_equals_the_step_from_the_same_state() -> None:
    model = CASES[0].model().train().cuda()
    twin = copy.deepcopy(model)
    averages = [ModelEmaV3(each, decay=0.9) for each in (model, twin)]
    states = [
        make_state(ADAM, each, torch.device("cuda"), ema) for each, ema in zip((model, twin), averages, strict=True)
    ]
    steps = [make_step(ADAM, state.model, loss, state) for state in states]
    generator = torch.Generator().manual_seed(0)
    batches = [
        (torch.randn(8, 3, 32, 32, generator=generator).cuda(), torch.randint(7, (8,), generator=generator).cuda())
        for _ in range(5)
    ]
    captured = capture(steps[0], batches[0], states[0].changing)
    for ours, before in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, before)  # warming up left no trace
    moments = [value for state in states[0].optimizer.state.values() for value in state.values()]
    assert moments and all(not value.any() for value in moments)
    found = [float(captured(each)) for each in batches]
    expected = [float(steps[1](each)) for each in batches]
    assert found == pytest.approx(expected, rel=1e-4)
    for mine, other in zip((model, averages[0].module), (twin, averages[1].module), strict=True):
        assert torch.allclose(mine.head.weight, other.head.weight, atol=1e-4)
