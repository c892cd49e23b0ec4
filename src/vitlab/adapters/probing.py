"""Test whether a softmax is between tokens: change one token and compare the logits.

With attention between tokens the logits of the token's row and column change. With attention between channels all
change; its shape is the same if there are as many channels as tokens.

Shape legend: B images, N query tokens, M key tokens, D channels, h w grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitlab.adapters.flow import preserve_state
from vitlab.core.anatomy import TokenLayout

_TOLERANCE = 1e-3  # relative to the largest change; smaller changes are rounding errors


def between_tokens(
    attention: nn.Module, arguments: tuple[Any, ...], keywords: Mapping[str, Any], layout: TokenLayout
) -> bool:
    """Whether the only softmax of a module is between the tokens of its input, in their order.

    Args:
        attention: the module; it runs a few times, in evaluation mode.
        arguments, keywords: its arguments; the first tensor among them holds the tokens.
        layout: the token layout of the block.
    """
    x = next((value for value in (*arguments, *keywords.values()) if isinstance(value, Tensor)), None)
    if x is None or _tokens_last(torch.empty(x.shape), layout) is None:
        return False

    def logits(tokens: Tensor) -> Tensor | None:
        given = tuple(tokens if value is x else value for value in arguments)
        return _logits(attention, given, {name: tokens if value is x else value for name, value in keywords.items()})

    # Noise replaces the tokens: those of an untrained model may all be near zero.
    generator = torch.Generator().manual_seed(0)
    noise, other = (torch.randn(x.shape, generator=generator).to(x) for _ in range(2))
    plain = logits(noise)
    if plain is None or plain.shape[-2:] != (layout.tokens, layout.tokens):
        return False
    for token in sorted({0, min(layout.prefix + 1, layout.tokens - 1), max(layout.tokens - 2, 0)}):
        changed = noise.clone()
        view, source = _tokens_last(changed, layout), _tokens_last(other, layout)
        assert view is not None and source is not None
        view[..., token] = source[..., token]
        after = logits(changed)
        if after is None or not _changes_only(after, plain, token):
            return False
    return True


def _tokens_last(x: Tensor, layout: TokenLayout) -> Tensor | None:
    """A view of the input of an attention module with tokens as the last axis; None if the axis is not known."""
    h, w = layout.grid
    if x.ndim == 3 and x.shape[1] == layout.tokens:
        return x.movedim(1, -1)
    if x.ndim == 3 and x.shape[0] == layout.tokens:  # (N, B, D), for nn.MultiheadAttention
        return x.movedim(0, -1)
    if x.ndim == 4 and layout.order == "BCHW" and x.shape[2:] == (h, w):
        return x.view(*x.shape[:2], h * w)
    if x.ndim == 4 and layout.order == "BHWD" and x.shape[1:3] == (h, w):
        return x.view(len(x), h * w, x.shape[3]).movedim(1, -1)
    return None


def _changes_only(after: Tensor, plain: Tensor, token: int) -> bool:
    """Whether a change of one token changed the logits of it, or of it and its neighbours, and no others."""
    change = (after - plain).abs().nan_to_num(0.0, 0.0, 0.0)  # masked logits are -inf in both
    change = change.reshape(-1, *change.shape[-2:]).amax(0)
    changed = change > _TOLERANCE * change.max()
    others = ~changed.diagonal()  # a logit on the diagonal depends on its own token only
    return bool(
        changed[token, token]
        and others.any()
        and changed[token, others].any()
        and changed[others, token].any()
        and not changed[others][:, others].any()
    )


def _logits(attention: nn.Module, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Tensor | None:
    """The logits (..., N, M) of the only softmax over the last axis in a module; None if there are several."""
    captured: list[Tensor | None] = []
    with ExitStack() as stack:
        for module in attention.modules():
            if isinstance(module, nn.MultiheadAttention):
                stack.callback(module.register_forward_pre_hook(_multihead(captured), with_kwargs=True).remove)
        stack.enter_context(_Softmaxes(captured))
        stack.enter_context(preserve_state(attention))
        attention(*arguments, **keywords)
    return captured[0] if len(captured) == 1 else None


class _Softmaxes(TorchFunctionMode):
    """Stores the logits of each softmax; all functions are called unchanged."""

    def __init__(self, captured: list[Tensor | None]) -> None:
        super().__init__()
        self._captured = captured

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            query, key = (*args, *kwargs.values())[:2]
            self._captured.append(query @ key.repeat_interleave(query.shape[-3] // key.shape[-3], -3).mT)
        elif func in (F.softmax, torch.softmax, Tensor.softmax):
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            self._captured.append(args[0].clone() if axis in (-1, args[0].ndim - 1) else None)
        return func(*args, **kwargs)


def _multihead(captured: list[Tensor | None]) -> Callable[..., None]:
    """A forward pre-hook that stores query·key: projections are per token, so the same tokens change before them."""

    def read(module: nn.MultiheadAttention, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        query, key = (*arguments, *keywords.values())[:2]
        if not module.batch_first:
            query, key = query.transpose(0, 1), key.transpose(0, 1)
        captured.append(query @ key.mT)

    return read
