"""Attention rows of every layer and head, and logit-lens predictions of every layer, for one image.

Queries and keys are stored instead of attention maps. A row of a map is computed on request.

Shape legend: H heads, N query tokens, M key tokens of the full map (prefix tokens first), T windows, n m tokens of one
window, K classes, h w grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block, TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.logit_lens import logit_lens
from vitlab.recording.attention_call import AttentionCall
from vitlab.recording.tape import Tape, record
from vitlab.recording.tokens import orders


@dataclass(frozen=True)
class LayerTrace:
    """One block on one image.

    Args:
        name: block name.
        kind: kind of token mixer.
        call: attention call, windows folded into the batch; None if the block has no attention map.
        why_no_map: the reason in one sentence if `call` is None.
        logits: (K,) logit-lens logits of the block's output; None if the head cannot be applied to it.
        why_no_logits: the reason in one sentence if `logits` is None.
    """

    name: str
    kind: str
    call: AttentionCall | None
    why_no_map: str
    logits: Tensor | None
    why_no_logits: str

    @property
    def heads(self) -> int:
        """H; 0 if there is no map."""
        return 0 if self.call is None else _size(self.call)[1]

    @property
    def bound(self) -> float:
        """Maximum entropy of a row: the logarithm of the number of keys of a query."""
        return 0.0 if self.call is None else math.log(_size(self.call)[3])

    def entropy(self) -> Tensor:
        """(H,) entropy of the rows in nats, averaged over all queries."""
        assert self.call is not None
        return self.call.statistics(["entropy"])["entropy"].mean((0, 2))

    def row(self, token: int) -> Tensor:
        """(H, M) attention of each head from a query token, in full-map order; 0 outside the query's window."""
        assert self.call is not None
        queries, keys = self.call.queries, self.call.keys
        position = _row_of(queries, token)
        _, _, n, m = _size(self.call)
        window, row = divmod(position, n)
        weights = _one_row(self.call, window, row)
        if keys.permutation is None:
            return weights
        order = orders(keys)[0].to(weights.device)
        return weights.new_zeros(len(weights), keys.tokens).index_copy(1, order[window * m : (window + 1) * m], weights)

    def token_at(self, y: float, x: float) -> int | None:
        """The query token at image coordinates from 0 to 1; None if no query token covers them.

        The queries of a class-attention layer have no grid.
        """
        assert self.call is not None
        return token_at(self.call.queries, y, x)


@dataclass(frozen=True)
class ImageTrace:
    """Logits (K,) of a model for one image, and its blocks in execution order."""

    logits: Tensor
    layers: tuple[LayerTrace, ...]


@contextmanager
def image_tracer(
    model: nn.Module, size: tuple[int, int] | None = None, anatomy: Anatomy | None = None
) -> Iterator[Callable[[Tensor], ImageTrace]]:
    """Context manager that yields a function from one preprocessed image (1, C, h, w) to an `ImageTrace`.

    Each call runs one forward. The model's state is restored on exit. All calls must come from the thread that entered
    the context.

    Args:
        model: a classifier of any family.
        size: (height, width) of the images; not with `anatomy`.
        anatomy: result of `describe` for this model and the size of the images, if already computed; saves a forward.
    """
    with (
        eval_mode(model),
        record(model, "attention", input_size=size, anatomy=anatomy) as tape,
        logit_lens(model, tape.anatomy) as lens,
    ):

        def trace_image(image: Tensor) -> ImageTrace:
            tape.clear()
            output = lens(image)
            logits = {name: batch[0] for name, batch in output.blocks.items()}
            layers = [_layer(block, tape, logits.get(block.name), output.why_not) for block in tape.anatomy.blocks]
            return ImageTrace(output.logits[0], tuple(layers))

        yield trace_image


def token_at(layout: TokenLayout, y: float, x: float) -> int | None:
    """The token of a grid at image coordinates from 0 to 1; None if the layout has no grid.

    >>> token_at(TokenLayout((2, 4), prefix=1), 0.99, 0.3)  # row 1, column 1, after one prefix token
    6
    """
    h, w = layout.grid
    if not h * w:
        return None
    row, column = min(int(y * h), h - 1), min(int(x * w), w - 1)
    return layout.prefix + row * w + column


def _layer(block: Block, tape: Tape, logits: Tensor | None, why_no_logits: dict[str, str]) -> LayerTrace:
    why = block.mixer.why_no_map or ""
    call = None
    if not why:
        call, why = _last(tape.calls(block.name)[-1])
    return LayerTrace(block.name, block.mixer.kind, call, why, logits, why_no_logits.get(block.name, ""))


def _last(call: AttentionCall) -> tuple[AttentionCall | None, str]:
    """The call of the last image of the batch, which the logit lens leaves unchanged, or why there is no map."""
    layouts = (call.queries, call.keys)
    if any(layout.permutation == () for layout in layouts):
        return (
            None,
            "token positions are unknown: padded windows (use an image size that they tile) or shuffled tokens",
        )
    if call.queries.windows != call.keys.windows:
        return None, "queries and keys have different windows"
    windows = call.queries.windows
    last = {
        name: value[-windows:] for name in ("q", "k", "bias", "weights") if (value := getattr(call, name)) is not None
    }
    selected = replace(call, **last)
    if _size(selected)[2] * windows != call.queries.tokens or _size(selected)[3] * windows != call.keys.tokens:
        return None, "the size of its map does not match its number of tokens"
    return selected, ""


def _size(call: AttentionCall) -> tuple[int, int, int, int]:
    """(T, H, n, m)."""
    if call.weights is not None:
        windows, heads, n, m = call.weights.shape
        return windows, heads, n, m
    assert call.q is not None and call.k is not None
    windows, heads, n, _ = call.q.shape
    return windows, heads, n, call.k.shape[-2]


def _row_of(queries: TokenLayout, token: int) -> int:
    """Row index of a token of the full map; rows are ordered by window."""
    if not 0 <= token < queries.tokens:
        raise VitlabError(f"no query token {token}; there are {queries.tokens}, 0 to {queries.tokens - 1}")
    return token if queries.permutation is None else int(orders(queries)[1][token])


def _one_row(call: AttentionCall, window: int, row: int) -> Tensor:
    """(H, m) one row of the map of one window; other rows are not computed."""

    def select(x: Tensor | None, rows: bool) -> Tensor | None:
        if x is None:
            return None
        x = x if len(x) == 1 else x[window : window + 1]
        return x[:, :, row : row + 1] if rows and x.shape[2] > 1 else x

    weights, q, bias = (select(each, True) for each in (call.weights, call.q, call.bias))
    k = select(call.k, False)
    with torch.no_grad():
        return replace(call, weights=weights, q=q, k=k, bias=bias).map()[0, :, 0]
