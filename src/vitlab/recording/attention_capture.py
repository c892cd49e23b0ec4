"""Capture the attention calls of a model while it runs; only a `FusedReduction` computes outputs, within rounding.

One of three methods is used, depending on the block's description:

- a `TorchFunctionMode` over `scaled_dot_product_attention` and softmax, with a stack of the blocks that are running;
- a hook on `nn.MultiheadAttention` (a mode would disable its fast path and change the last bits of the output);
- a hook on the module whose input is the final map, where the map is not the output of one softmax (ConViT).

A block's module calls attention once per forward. A second call would look like the map of more images: an error.

The captured map is before dropout. CaiT mixes heads after the softmax: the output of the softmax is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitlab.core.anatomy import Block
from vitlab.core.errors import VitlabError
from vitlab.recording.attention_call import AttentionCall


class FusedReduction:
    """Base class of reductions that can also compute the attention: one operator gives the output and the result."""

    def __call__(self, call: AttentionCall) -> Any:
        """The result for a call whose output the model computes."""
        raise NotImplementedError

    def attend(self, call: AttentionCall, values: Tensor) -> tuple[Tensor, Any] | None:
        """The output for values (B, H, M, d), and the result; None if the model's own call is to be used."""
        raise NotImplementedError


def capture_attention(
    model: nn.Module,
    blocks: list[Block],
    entries: dict[Any, list[Any]],
    keep: Callable[[Tensor], Tensor],
    reduce: Callable[[AttentionCall], Any] | FusedReduction | None,
    stack: ExitStack,
) -> None:
    """Capture the attention calls of the given blocks until the stack is closed.

    Args:
        model: the model itself, without wrappers.
        blocks: the blocks to capture; those without a token-token map are skipped.
        entries: receives one list per captured block; each call is appended to it.
        keep: applied to every tensor first: detaches it, or returns it unchanged.
        reduce: maps a call to the value that is appended instead of the call. A `FusedReduction` may compute the output
            of scaled_dot_product_attention too.
        stack: removes all hooks when it is closed.
    """
    mode = _FunctionCapture()
    once = _SingleCall()
    for block in blocks:
        if block.mixer.queries is None:
            continue
        save = _saver(block, entries.setdefault(block.name, []), once, keep, reduce)
        module = model.get_submodule(block.mixer.path)
        for register in (module.register_forward_pre_hook, module.register_forward_hook):
            stack.callback(register(once.resetting(block.name)).remove)
        if block.mixer.map_at is not None:
            handle = model.get_submodule(block.mixer.map_at).register_forward_pre_hook(_capture_map(save))
        elif isinstance(module, nn.MultiheadAttention):
            handle = module.register_forward_pre_hook(_capture_multihead(save), with_kwargs=True)
        else:
            mode.capture(module, save, stack, _attend(block, entries[block.name], once, reduce))
            continue
        stack.callback(handle.remove)
    if mode.captured:
        for name, module in model.named_modules():
            if name.rpartition(".")[2].startswith("vitlab_"):  # the softmax of a part is not an attention map
                mode.capture(module, None, stack)
        stack.callback(model.register_forward_pre_hook(mode.start).remove)
        stack.enter_context(mode)


def _saver(
    block: Block,
    entry: list[Any],
    once: _SingleCall,
    keep: Callable[[Tensor], Tensor],
    reduce: Callable[[AttentionCall], Any] | FusedReduction | None,
) -> Callable[..., None]:
    """A function that appends one attention call of a block to its list."""
    queries, keys, axis = block.mixer.queries, block.mixer.keys, block.mixer.window_axis
    assert queries is not None and keys is not None

    def save(scale: float = 1.0, bias: Tensor | None = None, **tensors: Tensor) -> None:
        if in_backward():
            return
        once.check(block.name)
        folded = {name: _fold(keep(tensor), axis) for name, tensor in tensors.items()}
        bias = None if bias is None else _fold(keep(bias), axis)
        call = AttentionCall(block.name, queries, keys, scale=scale, bias=bias, **folded)
        entry.append(call if reduce is None else reduce(call))

    return save


def _attend(
    block: Block,
    entry: list[Any],
    once: _SingleCall,
    reduce: Callable[[AttentionCall], Any] | FusedReduction | None,
) -> Callable[..., Tensor | None] | None:
    """A function that computes a call of scaled_dot_product_attention and appends its result, or returns None."""
    queries, keys = block.mixer.queries, block.mixer.keys
    assert queries is not None and keys is not None
    if not isinstance(reduce, FusedReduction):
        return None

    def attend(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> Tensor | None:
        if in_backward() or query.ndim != 4 or _dropout(*rest, **named):
            return None
        operands = _operands(query, key, value, *rest, **named)
        call = AttentionCall(block.name, queries, keys, **operands)
        found = reduce.attend(call, value)
        if found is None:
            return None
        once.check(block.name)
        entry.append(found[1])
        return found[0]

    return attend


def _dropout(attn_mask: Tensor | None = None, dropout_p: float = 0.0, *_: Any, **__: Any) -> float:
    return dropout_p


def _fold(x: Tensor, axis: int) -> Tensor:
    """Fold a separate window axis into the batch: (B, H, T, n, d) or (B, T, H, n, d) -> (B·T, H, n, d)."""
    if x.ndim == 5:
        return x.movedim(axis, 1).flatten(0, 1)
    return x[:, None] if x.ndim == 3 else x


class _SingleCall:
    """Raises an error on a second attention call in one forward of a block's module."""

    def __init__(self) -> None:
        self._called: set[str] = set()

    def resetting(self, block: str) -> Callable[..., None]:
        """A hook that resets the check for a block.

        It runs before and after the block's module, so that every forward starts in the same state: a compiled forward
        is guarded on it and would compile again.
        """

        def reset(*arguments: Any) -> None:
            self._called.discard(block)

        return reset

    def check(self, block: str) -> None:
        """Register a call of a block; raise an error if it is the second one."""
        if block in self._called:
            raise VitlabError(
                f"{block} calls attention more than once per forward; expected one call per block; "
                "write an adapter that describes each attention as a separate block"
            )
        self._called.add(block)


class _FunctionCapture(TorchFunctionMode):
    """Captures calls of scaled_dot_product_attention and softmax inside given modules."""

    def __init__(self) -> None:
        super().__init__()
        self.captured = 0
        self._running: list[tuple[Callable[..., None] | None, Callable[..., Tensor | None] | None]] = []

    def capture(
        self,
        module: nn.Module,
        save: Callable[..., None] | None,
        stack: ExitStack,
        attend: Callable[..., Tensor | None] | None = None,
    ) -> None:
        """Pass the attention calls inside `module` to `save`, unless `attend` computes them; None ignores them."""

        def enter(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            self._running.append((save, attend))

        def leave(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            self._running.pop()

        self.captured += save is not None
        stack.callback(module.register_forward_pre_hook(enter).remove)
        stack.callback(module.register_forward_hook(leave).remove)

    def start(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Clear the stack at the start of a forward: an earlier forward that raised may have left entries."""
        self._running.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # torch.compile cannot trace the method, which is written in Python, while a TorchFunctionMode is active.
        function = torch.unflatten if func is torch.Tensor.unflatten else func
        save, attend = self._running[-1] if self._running else (None, None)
        if attend is not None and func is F.scaled_dot_product_attention:
            attended = attend(*args, **kwargs)
            if attended is not None:
                return attended
        output = function(*args, **kwargs)
        if save is not None:
            if func is F.scaled_dot_product_attention:
                save(**_operands(*args, **kwargs))
            elif func in _SOFTMAX and _over_last_axis(*args, **kwargs):
                save(weights=output)
        return output


_SOFTMAX = (F.softmax, torch.softmax, torch.Tensor.softmax)


def _over_last_axis(x: Tensor, dim: int | None = None, *_: Any, **__: Any) -> bool:
    return dim in (-1, x.ndim - 1) and x.ndim >= 3


def _operands(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> dict[str, Any]:
    """The operands of a call of scaled_dot_product_attention, masks as an additive bias."""
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        attn_mask = _as_bias(attn_mask, query)
        attn_mask = attn_mask.reshape((1,) * (query.ndim - attn_mask.ndim) + attn_mask.shape)
    return {"q": query, "k": key, "bias": attn_mask, "scale": query.shape[-1] ** -0.5 if scale is None else scale}


def _as_bias(mask: Tensor, like: Tensor) -> Tensor:
    """A boolean mask (True: attend) as an additive bias on the logits."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(~mask, float("-inf"))


def _capture_map(save: Callable[..., None]) -> Callable[..., None]:
    def read(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        save(weights=arguments[0])

    return read


def _capture_multihead(save: Callable[..., None]) -> Callable[..., None]:
    """Recompute q and k of `nn.MultiheadAttention` in a hook: `need_weights=True` would change its output."""

    def read(module: nn.MultiheadAttention, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
        given = {**dict(zip(names, arguments, strict=False)), **keywords}
        if module.in_proj_weight is None or given.get("key_padding_mask") is not None or module.bias_k is not None:
            raise VitlabError("nn.MultiheadAttention with a padding mask, kdim or bias_kv cannot be recorded")
        query, key = given["query"], given["key"]
        if not module.batch_first:
            query, key = query.transpose(0, 1), key.transpose(0, 1)
        weights = module.in_proj_weight.chunk(3)[:2]
        biases = module.in_proj_bias.chunk(3)[:2] if module.in_proj_bias is not None else (None, None)
        q, k = (
            F.linear(x, weight, bias).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
            for x, weight, bias in zip((query, key), weights, biases, strict=True)
        )
        mask = given.get("attn_mask")
        if mask is not None:
            mask = _as_bias(~mask if mask.dtype == torch.bool else mask, q)  # here True means masked
            mask = mask.unflatten(0, (-1, module.num_heads)) if mask.ndim == 3 else mask[None, None]
        save(q=q, k=k, scale=module.head_dim**-0.5, bias=mask)

    return read


def in_backward() -> bool:
    """Whether this forward is the recomputation of gradient checkpointing, which was recorded in the first forward."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
