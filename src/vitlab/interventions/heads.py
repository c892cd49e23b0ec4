"""Read or change the outputs of single attention heads, before the output projection.

The output of head h is Σ_j a_ij v_j. It is the output of `scaled_dot_product_attention`, or of the product of the map
and the values. A `TorchFunctionMode` changes it while the module of the block runs, so fused attention stays enabled.
`nn.MultiheadAttention` is computed again from its weights, because a mode does not see its inner calls.

Shape legend: B batch (windows folded into it), H heads, N tokens, d channels of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitlab.core.anatomy import Block
from vitlab.core.errors import VitlabError
from vitlab.interventions.hooks import hooked

#: Receives the outputs of all heads (B, H, N, d) and returns new ones, or None to leave them unchanged.
HeadChange = Callable[[Tensor], Tensor | None]

_SOFTMAX = (F.softmax, torch.softmax, torch.Tensor.softmax)
_DROPOUT = (F.dropout, torch.dropout)
_PRODUCT = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm, torch.Tensor.bmm)


@contextmanager
def changed_heads(model: nn.Module, changes: Mapping[str, tuple[Block, HeadChange]]) -> Iterator[None]:
    """Context manager: apply a function to the head outputs of some blocks in every forward.

    Args:
        model: the model itself, without wrappers.
        changes: by name of the block, the block and the function.
    """
    mode = _HeadOutputs()
    with ExitStack() as stack:
        for block, change in changes.values():
            if block.mixer.queries is None:
                why = block.mixer.why_no_map or "it has no attention map"
                raise VitlabError(f"{block.name} has no attention heads to change: {why}")
            module = model.get_submodule(block.mixer.path)
            if isinstance(module, nn.MultiheadAttention):
                stack.enter_context(hooked(model, block.mixer.path, _multihead_hook(change), with_kwargs=True))
            else:
                mode.watch(model, block, change, stack)
        if mode.watched:
            stack.enter_context(hooked(model, "", mode.start, "in"))
            stack.enter_context(mode)
        yield


class _HeadOutputs(TorchFunctionMode):
    """Changes the head outputs that are computed inside given modules."""

    def __init__(self) -> None:
        super().__init__()
        self.watched = 0
        self._thread = get_ident()  # a mode changes the functions of its own thread
        self._running: list[HeadChange | None] = []
        self._map: Tensor | None = None  # the last softmax of the running module, for the product with the values
        self._changed = False

    def watch(self, model: nn.Module, block: Block, change: HeadChange, stack: ExitStack) -> None:
        """Change the head outputs of a block."""
        path = block.mixer.path
        axis = 1 if block.mixer.window_axis == 2 else 2

        def fold(output: Tensor) -> Tensor:
            return _folded(output, axis, change)

        def enter(module: nn.Module, arguments: Any) -> None:
            if not torch.compiler.is_compiling() and get_ident() != self._thread:
                raise VitlabError(
                    "heads are changed only in the thread that entered `intervene`; run the model in that thread"
                )
            self._running.append(fold)
            self._map, self._changed = None, False

        def leave(module: nn.Module, arguments: Any, output: Any) -> None:
            self._running.pop()
            if not self._changed:
                raise VitlabError(
                    f"the outputs of the heads of {block.name} were not found: its heads are mixed after the softmax, "
                    "or it does not compute attention as a product of the map and the values; use at='attn'"
                )

        self.watched += 1
        stack.enter_context(hooked(model, path, enter, "in"))
        stack.enter_context(hooked(model, path, leave))
        if block.mixer.map_at is not None:
            stack.enter_context(hooked(model, block.mixer.map_at, self._remember))

    def start(self, module: nn.Module, arguments: Any) -> None:
        """Clear the stack at the start of a forward: an earlier forward that raised may have left entries."""
        self._running.clear()

    def _remember(self, module: nn.Module, arguments: Any, output: Tensor) -> None:
        self._map = output

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if not self._running or self._running[-1] is None:
            return output
        if func is F.scaled_dot_product_attention:
            return self._apply(output)
        if func in _SOFTMAX and isinstance(output, Tensor) and output.ndim >= 3:
            self._map = output
        elif self._map is not None and args and args[0] is self._map:
            if func in _DROPOUT:
                self._map = output
            elif func in _PRODUCT:
                self._map = None
                return self._apply(output)
        return output

    def _apply(self, output: Tensor) -> Tensor:
        self._changed = True
        change = self._running[-1]
        new = change(output) if change is not None else None
        return output if new is None else new


def _folded(output: Tensor, axis: int, change: HeadChange) -> Tensor:
    """Apply a change to head outputs of any shape, as (B, H, N, d).

    Args:
        output: (B, H, N, d); (B, H, T, n, d) or (B, T, H, n, d) with a window axis; (B, N, d) for one head.
        axis: the axis of the heads in five dimensions.
        change: the function.
    """
    if output.ndim == 3:
        new = change(output[:, None])
        return output if new is None else new[:, 0]
    if output.ndim == 5:
        windows = output.movedim(axis, 2)  # (B, T, H, n, d)
        new = change(windows.flatten(0, 1))
        return output if new is None else new.view_as(windows).movedim(2, axis)
    new = change(output)
    return output if new is None else new


def _multihead_hook(change: HeadChange) -> Callable[..., Any]:
    """A forward hook of `nn.MultiheadAttention` that computes its output from changed head outputs."""

    def hook(module: nn.MultiheadAttention, arguments: Any, keywords: dict[str, Any], output: Any) -> Any:
        names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
        given = {**dict(zip(names, arguments, strict=False)), **keywords}
        if module.in_proj_weight is None or given.get("key_padding_mask") is not None or module.bias_k is not None:
            raise VitlabError("heads of nn.MultiheadAttention with a padding mask, kdim or bias_kv cannot be changed")
        if given.get("attn_mask") is not None:
            raise VitlabError("heads of nn.MultiheadAttention with an attention mask cannot be changed")
        inputs = [given[name] if module.batch_first else given[name].transpose(0, 1) for name in names[:3]]
        biases = module.in_proj_bias.chunk(3) if module.in_proj_bias is not None else (None, None, None)
        q, k, v = (
            F.linear(x, weight, bias).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
            for x, weight, bias in zip(inputs, module.in_proj_weight.chunk(3), biases, strict=True)
        )
        heads = F.scaled_dot_product_attention(q, k, v)
        new = change(heads)
        if new is None:
            return None
        y = module.out_proj(new.transpose(1, 2).flatten(2))
        y = y if module.batch_first else y.transpose(0, 1)
        return (y, *output[1:]) if isinstance(output, tuple) else y

    return hook
