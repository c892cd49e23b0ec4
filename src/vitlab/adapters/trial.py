"""Test whether attention and MLP are the only residual branches of a block, with one forward.

The output of every attention and MLP module is set to zero. If the output of a block, and the tensor between its
halves, then equal its input bit by bit, only these two modules add to the residual stream.
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
from vitlab.adapters.flow import Flow, Shape, zero_output


class Trial(TorchFunctionMode):
    """One forward with the output of every attention and MLP module set to zero; records the tensors of each block.

    `inputs` and `outputs` are those of every block and its children, before parts that are fitted there; `maps` are
    the shapes (..., queries, keys) of a block's softmaxes; `calls` are the arguments of its attention.
    """

    def __init__(self, model: nn.Module, flow: Flow, halves: dict[str, tuple[str, str]]) -> None:
        super().__init__()
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self.maps: dict[str, list[Shape]] = {path: [] for path in halves}
        self.calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._entries: dict[str, Tensor] = {}  # copies: a block may add to its input in place
        self._repeated: set[str] = set()
        self._running: list[Shape] | None = None
        height, width = flow.input("")[-2:]
        images = blank_images(model, (height, width))
        self.on_meta = images.is_meta  # then there are no values to compare, and nothing is confirmed
        noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
        with ExitStack() as stack:
            for path, (attention, mlp) in halves.items():
                block = model.get_submodule(path)
                ends = (last_linear(model, flow, f"{path}.{mlp}") or path, leaf(model, f"{path}.{mlp}", -1))
                for module_path in {path, *ends, *(f"{path}.{name}" for name, _ in block.named_children())}:
                    module = model.get_submodule(module_path)
                    stack.callback(module.register_forward_pre_hook(self._input_hook(module_path), prepend=True).remove)
                    stack.callback(module.register_forward_hook(self._output_hook(module_path), prepend=True).remove)
                attention_module = block.get_submodule(attention)
                stack.callback(
                    attention_module.register_forward_pre_hook(self._start_hook(path), with_kwargs=True).remove
                )
                stack.callback(attention_module.register_forward_hook(self._stop).remove)
                for name in (attention, mlp):
                    stack.callback(block.get_submodule(name).register_forward_hook(zero_output).remove)
            stack.enter_context(self)
            Flow(model, {"": noise.to(images)})

    def _input_hook(self, module_path: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            if module_path in self.inputs:
                self._repeated.add(module_path)
            if arguments and isinstance(arguments[0], Tensor):
                self.inputs[module_path] = arguments[0]
                if module_path in self.maps:
                    self._entries[module_path] = arguments[0].clone()

        return hook

    def _output_hook(self, module_path: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor):
                self.outputs[module_path] = first

        return hook

    def _start_hook(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            self._running = self.maps[path]
            self.calls[path] = (arguments, keywords)

        return hook

    def _stop(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        self._running = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function unchanged, and store the shape of every map."""
        output = func(*args, **(kwargs or {}))
        if self._running is not None:
            if func is F.scaled_dot_product_attention:
                query, key = (*args, *(kwargs or {}).values())[:2]
                self._running.append((*query.shape[:-1], key.shape[-2]))
            elif func in (F.softmax, torch.softmax, Tensor.softmax):
                self._running.append(tuple(output.shape))
        return output

    def hookable(self, path: str) -> bool:
        """Whether a part at a module would run exactly once, with a tensor input and output."""
        return path in self.inputs and path in self.outputs and path not in self._repeated

    def is_identity(self, path: str, norm2: str) -> bool:
        """Whether the output of a block, and the tensor between its halves, equal its input."""
        x = self._entries[path]
        return not self.on_meta and torch.equal(x, self.inputs[norm2]) and torch.equal(x, self.outputs[path])

    def before(self, model: nn.Module, path: str, child: str) -> str:
        """The sibling whose output is the input of a child (its norm), or the child itself."""
        target = self.inputs.get(f"{path}.{child}")
        siblings = [name for name, _ in model.get_submodule(path).named_children() if name != child]
        ends = {name: self.outputs[f"{path}.{name}"] for name in siblings if f"{path}.{name}" in self.outputs}
        return next((name for name, end in ends.items() if end is target), child)


def last_linear(model: nn.Module, flow: Flow, mlp: str) -> str | None:
    """The last linear layer, or 1x1 convolution, that ran in an MLP."""
    inside = [path for path in flow.calls if path.startswith(f"{mlp}.")]
    linear = [path for path in inside if isinstance(model.get_submodule(path), (nn.Linear, nn.Conv2d))]
    return linear[-1] if linear else None


def leaf(model: nn.Module, path: str, position: int) -> str:
    """The first (0) or last (-1) module inside nested nn.Sequentials: a hook on a container would run a part twice."""
    module = model.get_submodule(path)
    while isinstance(module, nn.Sequential):
        name, module = list(module.named_children())[position]
        path = f"{path}.{name}"
    return path
