"""One forward, observed: the shapes that went into and came out of every module.

An adapter reads a module tree; this is where it learns what the tree does not say, such as the grid that a given
input size leads to. The model is left as it was found: hooks, training mode, gradients and random state.
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

_BATCH = 2  # two images, so that a batch axis can be told from a window axis
_CHANNEL = {"BND": 2, "BDN": 1, "BHWD": 3, "BCHW": 1, "BTND": 3}


@dataclass(frozen=True)
class _Visit:
    """What one module saw."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    input: Shape
    output: Shape


class Flow:
    """What one forward showed of a model.

    Args:
        model: the model; it runs once, in evaluation mode, without gradients.
        inputs: what to feed it, as keyword arguments or as the single entry `""` for a positional image.
    """

    def __init__(self, model: nn.Module, inputs: Mapping[str, Tensor]) -> None:
        self.visits: dict[str, _Visit] = {}
        positional = [tensor for name, tensor in inputs.items() if not name]
        keywords = {name: tensor for name, tensor in inputs.items() if name}
        with ExitStack() as stack:
            stack.enter_context(undisturbed(model))
            for path, module in model.named_modules():
                handle = module.register_forward_hook(self._visit(path), with_kwargs=True)
                stack.callback(handle.remove)
            model(*positional, **keywords)

    def _visit(self, path: str) -> Any:
        def note(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
            first = _first_tensor(arguments) if arguments else _first_tensor(tuple(keywords.values()))
            plain = tuple(_plain(argument) for argument in arguments)
            self.visits[path] = _Visit(plain, {k: _plain(v) for k, v in keywords.items()}, first, _first_tensor(output))

        return note

    def ran(self, path: str) -> bool:
        """Whether the module of that path was called."""
        return path in self.visits

    def input(self, path: str) -> Shape:
        """Shape of the first tensor that went in."""
        return self.visits[path].input

    def output(self, path: str) -> Shape:
        """Shape of the first tensor that came out."""
        return self.visits[path].output

    def argument(self, path: str, position: int, keyword: str) -> Any:
        """An argument that is no tensor (a size, for example), however it was passed."""
        visit = self.visits[path]
        return visit.arguments[position] if position < len(visit.arguments) else visit.keywords.get(keyword)

    def grid(self, path: str) -> tuple[int, int]:
        """Rows and columns of the (B, C, h, w) map that came out of a module."""
        _, _, h, w = self.output(path)
        return h, w

    def seam(self, name: str, path: str, side: Side, layout: TokenLayout) -> Seam:
        """A seam, its width read from the observed shape, which must be what the layout says."""
        shape = self.output(path) if side == "out" else self.input(path)
        dim = shape[_CHANNEL[layout.order]]
        assert prod(shape) == _BATCH * layout.tokens * dim, f"{name} at {path}: {shape} is not {layout}"
        return Seam(name, path, side, layout, dim)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
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
    """What a forward may change: the mode, LeViT's bias cache, ConViT's indices, Hugging Face Swin's window."""
    plain = (Tensor, dict, tuple, int, float, type(None))
    return {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in vars(module).items()
        if not name.startswith("_") and isinstance(value, plain)
    }


def _first_tensor(value: Any) -> Shape:
    """Shape of the first tensor in nested tuples, or () where there is none."""
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return next((shape for shape in map(_first_tensor, value) if shape), ())
    return ()


def _plain(value: Any) -> Any:
    """Tensors are not kept alive, only their shapes."""
    return tuple(value.shape) if isinstance(value, Tensor) else value
