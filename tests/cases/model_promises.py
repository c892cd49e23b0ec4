"""Contract of vitlab's architectures, as functions that a test file calls on its tiny models."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def multiply_accumulates(model: nn.Module, size: tuple[int, int] = (224, 224)) -> float:
    """In units of 10⁹, for one image; a flop counter counts two operations each."""
    device = next(model.parameters()).device
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model.eval()(torch.empty(1, 3, *size, device=device))
    return counter.get_total_flops() / 2e9


def images(*size: int, seed: int = 1) -> Tensor:
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(seed))


def trains(model: nn.Module, x: Tensor) -> None:
    """Every parameter gets a gradient that is finite, and not zero everywhere unless it is a bias before a norm."""
    model.train()
    (model(x) * torch.arange(1.0, 8.0)).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0 or name.endswith("bias"), name


def compiles_and_exports(model: nn.Module, x: Tensor) -> None:
    torch._dynamo.reset()  # else a second size is traced with symbolic shapes, which takes long
    model.eval()
    with torch.no_grad():
        expected = model(x)
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), expected)
        torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), expected)


def round_trips(model: nn.Module, other: nn.Module, x: Tensor) -> None:
    """Another model of the same kind gives the same logits once it has the same state."""
    model.eval(), other.eval()
    assert not torch.equal(model(x), other(x))
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(model(x), other(x))
