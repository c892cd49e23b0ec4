"""Read a model in flight: `record` opens a tape, the model runs as it always does, the tape holds what passed.

Fused attention stays on and outputs stay bit-identical: the recorder calls every function through unchanged and
looks at what went in. Three ways to look, chosen by the block's description:

- a `TorchFunctionMode` over `scaled_dot_product_attention` and softmax, with a stack of the blocks that are running;
- a hook on `nn.MultiheadAttention` (a mode would switch off its fast path, and with it the last bits);
- a hook on the module whose input is the true map, where the softmax is not the last word (ConViT).

Dropout inside attention is not in the recorded map. CaiT mixes heads after the softmax: the softmax is what is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitlab.adapters import describe
from vitlab.adapters.wrappers import guard_hooks, unwrap
from vitlab.attention import AttentionCall
from vitlab.core.anatomy import SEAMS, TAPS, Anatomy, Block, Seam, TokenLayout
from vitlab.core.errors import VitlabError, unknown
from vitlab.tokens import to_tokens

__all__ = ["Feature", "Tape", "record"]

Key = str | tuple[str, str]


@dataclass(frozen=True)
class Feature:
    """Tokens that passed a place of a block: (B, N, D) in full-map order, and how they lie."""

    block: str
    place: str
    tokens: Tensor
    layout: TokenLayout


_PLACES = {"features": ("block.out",), "branches": ("attn.out", "mlp.out")}


class Tape(Mapping[Key, Any]):
    """What was recorded, by block.

    `tape["blocks.3"]` is the attention map (B, H, N, M), windows folded into the batch, forwards one after the other;
    or, with a reducer, the list of what it returned. For features and branches `tape["blocks.3", "attn.out"]` is
    (B, N, D); the place may be left out where only one was recorded.
    """

    def __init__(self, what: str, anatomy: Anatomy, places: tuple[str, ...]) -> None:
        self.what, self.anatomy = what, anatomy
        self._places = places
        self._entries: dict[Key, list[Any]] = {}

    def calls(self, block: str) -> list[AttentionCall]:
        """The attention calls of a block, one for each forward."""
        return list(self._find(block))

    def clear(self) -> None:
        """Forget what was recorded; recording goes on."""
        for entry in self._entries.values():
            entry.clear()

    def __getitem__(self, key: Key) -> Any:
        entry = self._find(key)
        if isinstance(entry[0], AttentionCall):
            maps = [call.map() for call in entry]
            if len({map.shape[1:] for map in maps}) > 1:
                shapes = ", ".join(str(tuple(map.shape)) for map in maps)
                raise VitlabError(
                    f"the maps of {key!r} have different shapes ({shapes}); take them one by one from tape.calls"
                )
            return torch.cat(maps)
        return torch.cat(entry) if isinstance(entry[0], Tensor) and self.what != "attention" else list(entry)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _find(self, key: Key) -> list[Any]:
        if isinstance(key, str) and self.what != "attention" and len(self._places) == 1:
            key = (key, self._places[0])
        if key not in self._entries:
            name = key if isinstance(key, str) else key[0]
            block = self.anatomy.block(name)
            if self.what == "attention" and block.mixer.why_no_map:
                raise VitlabError(f"{name} has no token-token map: {block.mixer.why_no_map}")
            raise unknown("recording", key, [str(known) for known in self._entries])
        if not self._entries[key]:
            raise VitlabError(f"nothing was recorded for {key!r} yet; run the model inside the `with` block")
        return self._entries[key]


@contextmanager
def record(
    model: nn.Module,
    what: str = "attention",
    *,
    at: str | Sequence[str] | None = None,
    blocks: Sequence[str] | None = None,
    reduce: Callable[[Any], Any] | None = None,
    gradients: bool = False,
    input_size: int | tuple[int, int] | None = None,
    anatomy: Anatomy | None = None,
) -> Iterator[Tape]:
    """Record what passes through a model while the `with` block runs; nothing is left behind.

    Args:
        model: any model that `describe` can read, compiled or wrapped in DDP or not.
        what: `"attention"` (maps), `"features"` (the residual stream after each block) or `"branches"` (what attention
            and MLP add to it).
        at: for features and branches, other places: seams or taps such as `"block.mid"`.
        blocks: names of the blocks to listen to; all by default.
        reduce: called with each AttentionCall or Feature as it arrives; its results are kept instead, so that neither
            maps nor features need be stored.
        gradients: keep the graph, so that a loss on what was recorded can train the model.
        input_size: size of the images, where it is not the model's own.
        anatomy: what `describe` said of the model at this size, where it is known: the model need not run for it again.

    Yields:
        The Tape.
    """
    if what not in ("attention", *_PLACES):
        raise unknown("recording", what, ["attention", *_PLACES])
    places = _places(what, at)
    inner = unwrap(model)
    if gradients and _checkpoints(inner):
        raise VitlabError(
            "recorded gradients cannot pass gradient checkpointing (its second forward would not see the recorder); "
            "switch it off with model.set_grad_checkpointing(False) or model.gradient_checkpointing_disable()"
        )
    if anatomy is not None and input_size is not None:
        raise VitlabError("record got both anatomy and input_size; the anatomy says its size already")
    anatomy = anatomy or describe(inner, input_size)
    chosen = list(anatomy.blocks) if blocks is None else [anatomy.block(name) for name in blocks]
    tape = Tape(what, anatomy, places)
    keep = (lambda x: x) if gradients else torch.Tensor.detach
    with ExitStack() as stack:
        if what == "attention":
            _listen(inner, chosen, tape, keep, reduce, stack)
        else:
            _tap(inner, chosen, places, tape, keep, reduce, stack)
        guard_hooks()
        yield tape


# -- features and branches: hooks at taps and seams -----------------------------------------------------------------


def _places(what: str, at: str | Sequence[str] | None) -> tuple[str, ...]:
    if at is None:
        return _PLACES.get(what, ())
    if what == "attention":
        raise VitlabError("`at` chooses places for 'features' and 'branches'; attention is read where it happens")
    places = (at,) if isinstance(at, str) else tuple(at)
    known = [name for name in dict.fromkeys((*TAPS, *SEAMS)) if name != "attn"]
    for place in places:
        if place not in known:
            raise unknown("place", place, known)
    return places


def _tap(
    model: nn.Module,
    blocks: list[Block],
    places: tuple[str, ...],
    tape: Tape,
    keep: Callable[[Tensor], Tensor],
    reduce: Callable[[Feature], Any] | None,
    stack: ExitStack,
) -> None:
    for block in blocks:
        for place in places:
            tap = block.tap(place)
            if tap is None:
                continue
            entry = tape._entries.setdefault((block.name, place), [])
            module = model.get_submodule(tap.path)
            read = _reader(entry, block.name, tap, keep, reduce)
            if tap.side == "in":
                # The residual stream is what came in, before a part at the same place acted on its way to the branch.
                handle = module.register_forward_pre_hook(read, prepend=tap in block.taps)
            else:
                handle = module.register_forward_hook(read)
            stack.callback(handle.remove)


def _reader(
    entry: list[Any], block: str, tap: Seam, keep: Callable[[Tensor], Tensor], reduce: Callable[[Feature], Any] | None
) -> Callable[..., None]:
    """A hook of either side: the last thing that it is given, arguments or output, holds the tokens."""

    def read(module: nn.Module, *given: Any) -> None:
        if _in_backward():
            return
        passed = given[-1][0] if isinstance(given[-1], tuple) else given[-1]
        tokens = to_tokens(keep(passed), tap.layout)
        entry.append(tokens if reduce is None else reduce(Feature(block, tap.name, tokens, tap.layout)))

    return read


# -- attention ------------------------------------------------------------------------------------------------------


def _listen(
    model: nn.Module,
    blocks: list[Block],
    tape: Tape,
    keep: Callable[[Tensor], Tensor],
    reduce: Callable[[AttentionCall], Any] | None,
    stack: ExitStack,
) -> None:
    mode = _Listener()
    for block in blocks:
        if block.mixer.queries is None:
            continue
        note = _note(block, tape._entries.setdefault(block.name, []), keep, reduce)
        module = model.get_submodule(block.mixer.path)
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
    block: Block, entry: list[Any], keep: Callable[[Tensor], Tensor], reduce: Callable[[AttentionCall], Any] | None
) -> Callable[..., None]:
    """How one attention call of a block is kept."""
    queries, keys, axis = block.mixer.queries, block.mixer.keys, block.mixer.window_axis
    assert queries is not None and keys is not None

    def note(scale: float = 1.0, bias: Tensor | None = None, **tensors: Tensor) -> None:
        if _in_backward():
            return
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


# -- leaving no trace -----------------------------------------------------------------------------------------------


def _in_backward() -> bool:
    """Whether this forward is the recomputation of gradient checkpointing, which was recorded the first time."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def _checkpoints(model: nn.Module) -> bool:
    return any(
        getattr(module, "grad_checkpointing", False) or getattr(module, "gradient_checkpointing", False)
        for module in model.modules()
    )
