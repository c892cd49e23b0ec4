"""How attention is heard while a model runs: every function is called through unchanged, and what went in is looked at.

Three ways, chosen by the block's description:

- a `TorchFunctionMode` over `scaled_dot_product_attention` and softmax, with a stack of the blocks that are running;
- a hook on `nn.MultiheadAttention` (a mode would switch off its fast path, and with it the last bits);
- a hook on the module whose input is the true map, where the softmax is not the last word (ConViT).

A block's module attends once each time it runs. A second call would be taken for the map of more images: an error.

Dropout inside attention is not in what is heard. CaiT mixes heads after the softmax: the softmax is what is read.
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


def listen(
    model: nn.Module,
    blocks: list[Block],
    entries: dict[Any, list[Any]],
    keep: Callable[[Tensor], Tensor],
    reduce: Callable[[AttentionCall], Any] | None,
    stack: ExitStack,
) -> None:
    """Hear the attention of some blocks until the stack is closed.

    Args:
        model: the model itself, without wrappers.
        blocks: those to listen to; what has no token-token map stays silent.
        entries: gets a list for each block that can be heard, which each of its calls joins.
        keep: what is done to every tensor first; it is detached, or not.
        reduce: what joins the list instead of the call.
        stack: what is hung on the model goes when it is closed.
    """
    mode = _Listener()
    once = _Once()
    for block in blocks:
        if block.mixer.queries is None:
            continue
        note = _note(block, entries.setdefault(block.name, []), once, keep, reduce)
        module = model.get_submodule(block.mixer.path)
        stack.callback(module.register_forward_pre_hook(once.entering(block.name)).remove)
        if block.mixer.map_at is not None:
            handle = model.get_submodule(block.mixer.map_at).register_forward_pre_hook(_reader_map(note))
        elif isinstance(module, nn.MultiheadAttention):
            handle = module.register_forward_pre_hook(_reader_multihead(note), with_kwargs=True)
        else:
            mode.watch(module, note, stack)
            continue
        stack.callback(handle.remove)
    if mode.watches:
        for name, module in model.named_modules():
            if name.rpartition(".")[2].startswith("vitlab_"):  # a part's own softmax is no attention map
                mode.watch(module, None, stack)
        stack.callback(model.register_forward_pre_hook(mode.start).remove)
        stack.enter_context(mode)


def _note(
    block: Block,
    entry: list[Any],
    once: _Once,
    keep: Callable[[Tensor], Tensor],
    reduce: Callable[[AttentionCall], Any] | None,
) -> Callable[..., None]:
    """How one attention call of a block is kept."""
    queries, keys, axis = block.mixer.queries, block.mixer.keys, block.mixer.window_axis
    assert queries is not None and keys is not None

    def note(scale: float = 1.0, bias: Tensor | None = None, **tensors: Tensor) -> None:
        if in_backward():
            return
        once.check(block.name)
        folded = {name: _fold(keep(tensor), axis) for name, tensor in tensors.items()}
        bias = None if bias is None else _fold(keep(bias), axis)
        call = AttentionCall(block.name, queries, keys, scale=scale, bias=bias, **folded)
        entry.append(call if reduce is None else reduce(call))

    return note


def _fold(x: Tensor, axis: int) -> Tensor:
    """Windows with an axis of their own go into the batch: (B, H, T, n, d) or (B, T, H, n, d) -> (B·T, H, n, d)."""
    if x.ndim == 5:
        return x.movedim(axis, 1).flatten(0, 1)
    return x[:, None] if x.ndim == 3 else x


class _Once:
    """Refuses a second attention call while the module of a block runs once; a module may run several times."""

    def __init__(self) -> None:
        self._heard: set[str] = set()

    def entering(self, block: str) -> Callable[..., None]:
        """A hook before the module in which a block attends."""

        def enter(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            self._heard.discard(block)

        return enter

    def check(self, block: str) -> None:
        """Note a call of a block; a second one is an error."""
        if block in self._heard:
            raise VitlabError(
                f"{block} holds more than one attention, and their maps cannot be told from those of more images; "
                "an adapter must describe each attention as a block of its own"
            )
        self._heard.add(block)


class _Listener(TorchFunctionMode):
    """Sees scaled_dot_product_attention and softmax while a watched module runs, and calls them through unchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.watches = 0
        self._running: list[Callable[..., None] | None] = []

    def watch(self, module: nn.Module, note: Callable[..., None] | None, stack: ExitStack) -> None:
        """While `module` runs, hand its attention calls to `note`; None ignores them."""

        def enter(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            self._running.append(note)

        def leave(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            self._running.pop()

        self.watches += note is not None
        stack.callback(module.register_forward_pre_hook(enter).remove)
        stack.callback(module.register_forward_hook(leave).remove)

    def start(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """A new forward: forget what an earlier one that raised may have left open."""
        self._running.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if self._running and self._running[-1] is not None:
            if func is F.scaled_dot_product_attention:
                self._running[-1](**_operands(*args, **kwargs))
            elif func in _SOFTMAX and _over_last_axis(*args, **kwargs):
                self._running[-1](weights=output)
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
    """A boolean mask (True: attend) as what is added to the logits."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(~mask, float("-inf"))


def _reader_map(note: Callable[..., None]) -> Callable[..., None]:
    def read(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        note(weights=arguments[0])

    return read


def _reader_multihead(note: Callable[..., None]) -> Callable[..., None]:
    """Recompute q and k of `nn.MultiheadAttention` beside it: asking it for its weights would change its output."""

    def read(module: nn.MultiheadAttention, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
        given = {**dict(zip(names, arguments, strict=False)), **keywords}
        if module.in_proj_weight is None or given.get("key_padding_mask") is not None or module.bias_k is not None:
            raise VitlabError("this use of nn.MultiheadAttention (padding mask, kdim or bias_kv) cannot be recorded")
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
            mask = _as_bias(~mask if mask.dtype == torch.bool else mask, q)  # here True means: do not attend
            mask = mask.unflatten(0, (-1, module.num_heads)) if mask.ndim == 3 else mask[None, None]
        note(q=q, k=k, scale=module.head_dim**-0.5, bias=mask)

    return read


def in_backward() -> bool:
    """Whether this forward is the recomputation of gradient checkpointing, which was recorded the first time."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
