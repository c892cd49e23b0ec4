"""Find the modules of a model that compute a softmax between two axes, as attention does, with one forward.

Works on the meta device too, because only shapes are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitlab.adapters.flow import Shape, preserve_state


def softmax_modules(model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, list[Shape]]:
    """The shapes (..., queries, keys) of all attention maps by the path of the innermost module that computes them.

    A softmax over one axis only (a gate, a pooling with one query, class probabilities) is not counted.

    Args:
        model: the model; it runs once, in evaluation mode, without gradients.
        inputs: its inputs by name; the name of a positional image is "".
    """
    observer = _Observer()
    with ExitStack() as stack:
        stack.enter_context(preserve_state(model))
        for path, module in model.named_modules():
            stack.callback(module.register_forward_pre_hook(observer.enter(path)).remove)
            stack.callback(module.register_forward_hook(observer.leave, always_call=True).remove)
        stack.enter_context(observer)
        positional = [tensor for name, tensor in inputs.items() if not name]
        model(*positional, **{name: tensor for name, tensor in inputs.items() if name})
    return observer.found


class _Observer(TorchFunctionMode):
    """Stores the shape of each attention map; all functions are called unchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[Shape]] = {}
        self._running: list[str] = []

    def enter(self, path: str) -> Callable[..., None]:
        """A forward pre-hook of the module at a path."""

        def hook(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            self._running.append(path)
            # The fused path of nn.MultiheadAttention calls no function that can be observed.
            if isinstance(module, nn.MultiheadAttention) and arguments and isinstance(arguments[0], Tensor):
                self._add(tuple(arguments[0].shape))

        return hook

    def leave(self, *_: Any) -> None:
        """A forward hook."""
        self._running.pop()

    def _add(self, shape: Shape) -> None:
        if len(shape) >= 3 and shape[-1] > 1 and shape[-2] > 1:
            self.found.setdefault(self._running[-1] if self._running else "", []).append(shape)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            query, key = (*args, *kwargs.values())[:2]
            self._add((*query.shape[:-1], key.shape[-2]))
        elif func in (F.softmax, torch.softmax, Tensor.softmax):
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            logits = args[0] if args else kwargs["input"]
            if axis in (-1, logits.ndim - 1):
                self._add(tuple(logits.shape))
        return func(*args, **kwargs)
