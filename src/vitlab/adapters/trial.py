"""One forward without branches: does a block only add what its attention and its MLP say?

The output of every attention and MLP module is set to zero. Where what comes out of a block, and what lies between its
halves, is then what went in, bit by bit, the two modules are all that reaches the residual stream.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitlab.adapters import blank_images
from vitlab.adapters.flow import Flow, Shape
from vitlab.adapters.token_order import silence


class Trial(TorchFunctionMode):
    """One forward with the output of every attention and MLP module set to zero, and what was seen of each block.

    `inputs` and `outputs` hold what went into and came out of every block and its children, before any part that sits
    there acted; `maps` the shapes (..., queries, keys) of a block's softmaxes; `calls` what its attention was given.
    """

    def __init__(self, model: nn.Module, flow: Flow, halves: dict[str, tuple[str, str]]) -> None:
        super().__init__()
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self.maps: dict[str, list[Shape]] = {path: [] for path in halves}
        self.calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._entries: dict[str, Tensor] = {}  # copies: a block may add to its input in place
        self._twice: set[str] = set()
        self._running: list[Shape] | None = None
        height, width = flow.input("")[-2:]
        images = blank_images(model, (height, width))
        if images.is_meta:
            return  # there are no values to compare
        noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
        with ExitStack() as stack:
            for path, (attention, mlp) in halves.items():
                block = model.get_submodule(path)
                ends = (last_linear(model, flow, f"{path}.{mlp}") or path, leaf(model, f"{path}.{mlp}", -1))
                for where in {path, *ends, *(f"{path}.{name}" for name, _ in block.named_children())}:
                    module = model.get_submodule(where)
                    stack.callback(module.register_forward_pre_hook(self._arrive(where), prepend=True).remove)
                    stack.callback(module.register_forward_hook(self._leave(where), prepend=True).remove)
                attends = block.get_submodule(attention)
                stack.callback(attends.register_forward_pre_hook(self._listen(path), with_kwargs=True).remove)
                stack.callback(attends.register_forward_hook(self._rest).remove)
                for name in (attention, mlp):
                    stack.callback(block.get_submodule(name).register_forward_hook(silence).remove)
            stack.enter_context(self)
            Flow(model, {"": noise.to(images)})

    def _arrive(self, where: str) -> Callable[..., None]:
        def arrive(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            if where in self.inputs:
                self._twice.add(where)
            if arguments and isinstance(arguments[0], Tensor):
                self.inputs[where] = arguments[0]
                if where in self.maps:
                    self._entries[where] = arguments[0].clone()

        return arrive

    def _leave(self, where: str) -> Callable[..., None]:
        def leave(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor):
                self.outputs[where] = first

        return leave

    def _listen(self, path: str) -> Callable[..., None]:
        def listen(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            self._running = self.maps[path]
            self.calls[path] = (arguments, keywords)

        return listen

    def _rest(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        self._running = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call through unchanged, and keep the shape of every map."""
        output = func(*args, **(kwargs or {}))
        if self._running is not None:
            if func is F.scaled_dot_product_attention:
                query, key = (*args, *(kwargs or {}).values())[:2]
                self._running.append((*query.shape[:-1], key.shape[-2]))
            elif func in (F.softmax, torch.softmax, Tensor.softmax):
                self._running.append(tuple(output.shape))
        return output

    def hookable(self, path: str) -> bool:
        """Whether a part on that module would run once, and see its tensor."""
        return path in self.inputs and path in self.outputs and path not in self._twice

    def is_identity(self, path: str, norm2: str) -> bool:
        """Whether what came out of a block, and what lay between its halves, was what went in."""
        x = self._entries[path]
        return torch.equal(x, self.inputs[norm2]) and torch.equal(x, self.outputs[path])

    def before(self, model: nn.Module, path: str, child: str) -> str:
        """The sibling whose output is what goes into a child (its norm), or the child itself."""
        target = self.inputs.get(f"{path}.{child}")
        siblings = [name for name, _ in model.get_submodule(path).named_children() if name != child]
        ends = {name: self.outputs[f"{path}.{name}"] for name in siblings if f"{path}.{name}" in self.outputs}
        return next((name for name, end in ends.items() if end is target), child)


def last_linear(model: nn.Module, flow: Flow, mlp: str) -> str | None:
    """The last linear layer, or 1x1 convolution, that ran in an MLP."""
    inside = [path for path in flow.visits if path.startswith(f"{mlp}.")]
    linear = [path for path in inside if isinstance(model.get_submodule(path), (nn.Linear, nn.Conv2d))]
    return linear[-1] if linear else None


def leaf(model: nn.Module, path: str, position: int) -> str:
    """The first (0) or last (-1) module inside nested nn.Sequentials: a hook on a container would run a part twice."""
    module = model.get_submodule(path)
    while isinstance(module, nn.Sequential):
        name, module = list(module.named_children())[position]
        path = f"{path}.{name}"
    return path
