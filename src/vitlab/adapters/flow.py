"""Record the input and output shapes of every module in one forward.

Adapters use them for what the module tree does not contain, such as the grid for a given input size. Hooks, training
mode, gradients and random state of the model are restored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Seam, Side, TokenLayout

Shape = tuple[int, ...]

_BATCH = 2  # two images, to distinguish a batch axis from a window axis
_CHANNEL = {"BND": 2, "BDN": 1, "BHWD": 3, "BCHW": 1, "BTND": 3}


@dataclass(frozen=True)
class _ModuleCall:
    """Arguments and shapes of the last call of one module."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    input: Shape
    output: Shape


def zero_output(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
    """A forward hook that sets the first output to zero.

    >>> zero_output(nn.Identity(), (), torch.ones(2))
    tensor([0., 0.])
    """
    if isinstance(output, tuple):
        return torch.zeros_like(output[0]), *output[1:]
    return torch.zeros_like(output)


def run_on(model: nn.Module, inputs: Mapping[str, Tensor]) -> Any:
    """Run a model on inputs by name, as `inputs_of` returns them; the name of a positional image is ""."""
    positional = [tensor for name, tensor in inputs.items() if not name]
    return model(*positional, **{name: tensor for name, tensor in inputs.items() if name})


class Flow:
    """The shapes in one forward of a model.

    Args:
        model: the model; it runs once, in evaluation mode, without gradients.
        inputs: its inputs by name, see `run_on`.
    """

    def __init__(self, model: nn.Module, inputs: Mapping[str, Tensor]) -> None:
        self.inputs = inputs
        self.calls: dict[str, _ModuleCall] = {}
        with ExitStack() as stack:
            stack.enter_context(preserve_state(model))
            for path, module in model.named_modules():
                handle = module.register_forward_hook(self._recorder(path), with_kwargs=True)
                stack.callback(handle.remove)
            run_on(model, inputs)

    def _recorder(self, path: str) -> Any:
        def hook(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
            first = _first_tensor(arguments) if arguments else _first_tensor(tuple(keywords.values()))
            plain = tuple(_plain(argument) for argument in arguments)
            named = {name: _plain(value) for name, value in keywords.items()}
            self.calls[path] = _ModuleCall(plain, named, first, _first_tensor(output))

        return hook

    def ran(self, path: str) -> bool:
        """Whether the module at a path was called."""
        return path in self.calls

    def input(self, path: str) -> Shape:
        """Shape of the first input tensor of a module."""
        return self.calls[path].input

    def output(self, path: str) -> Shape:
        """Shape of the first output tensor of a module."""
        return self.calls[path].output

    def argument(self, path: str, position: int, keyword: str) -> Any:
        """A non-tensor argument (a size, for example), passed by position or by keyword."""
        call = self.calls[path]
        return call.arguments[position] if position < len(call.arguments) else call.keywords.get(keyword)

    def grid(self, path: str) -> tuple[int, int]:
        """Rows and columns of a module's output map (B, C, h, w)."""
        _, _, h, w = self.output(path)
        return h, w

    def seam(self, name: str, path: str, side: Side, layout: TokenLayout) -> Seam:
        """A seam, with its width from the recorded shape, which must match the layout."""
        shape = self.output(path) if side == "out" else self.input(path)
        dim = shape[_CHANNEL[layout.order]]
        assert prod(shape) == _BATCH * layout.tokens * dim, f"{name} at {path}: {shape} is not {layout}"
        return Seam(name, path, side, layout, dim)


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Run a model in evaluation mode without gradients; mode, attributes and random state are restored on exit."""
    before = [(module, _attributes(module)) for module in model.modules()]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            if any(module.training for module in model.modules()):
                model.eval()
            yield
        finally:
            for module, attributes in before:
                vars(module).update(attributes)


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Attributes that a forward may change: mode, LeViT's bias cache, ConViT's indices, Hugging Face Swin's window."""
    plain = (Tensor, dict, tuple, int, float, type(None))
    return {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in vars(module).items()
        if not name.startswith("_") and isinstance(value, plain)
    }


def _first_tensor(value: Any) -> Shape:
    """Shape of the first tensor in nested tuples, or () if there is none."""
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return next((shape for shape in map(_first_tensor, value) if shape), ())
    return ()


def _plain(value: Any) -> Any:
    """The shape of a tensor, so that it is not kept in memory; other values unchanged."""
    return tuple(value.shape) if isinstance(value, Tensor) else value
