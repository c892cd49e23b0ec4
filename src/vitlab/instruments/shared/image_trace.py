"""A look inside a model at one image: where every layer and head looks from a token, and what every layer predicts.

Queries and keys are kept, not maps: a row of a map is made when somebody asks for it.

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

from vitlab.core.anatomy import Block, TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.logit_lens import lens
from vitlab.recording.attention_call import AttentionCall
from vitlab.recording.tape import Tape, record
from vitlab.recording.tokens import orders


@dataclass(frozen=True)
class Layer:
    """One block at one image.

    Args:
        name, kind: of the block and of what mixes its tokens.
        call: its attention, windows folded into the batch; None where there is no map to show.
        why_no_map: the reason then, in one sentence.
        logits: (K,) what the head says of its output; None where it cannot be read.
        why_no_logits: the reason then.
    """

    name: str
    kind: str
    call: AttentionCall | None
    why_no_map: str
    logits: Tensor | None
    why_no_logits: str

    @property
    def heads(self) -> int:
        """H; 0 where there is no map."""
        return 0 if self.call is None else _size(self.call)[1]

    @property
    def bound(self) -> float:
        """The largest entropy that a row can have, the logarithm of the keys that a query sees."""
        return 0.0 if self.call is None else math.log(_size(self.call)[3])

    def entropy(self) -> Tensor:
        """(H,) entropy of the rows in nats, averaged over all queries."""
        assert self.call is not None
        return self.call.statistics(["entropy"])["entropy"].mean((0, 2))

    def row(self, token: int) -> Tensor:
        """(H, M) where each head looks from a query token, in full-map order; 0 outside the query's window."""
        assert self.call is not None
        queries, keys = self.call.queries, self.call.keys
        place = _place(queries, token)
        _, _, n, m = _size(self.call)
        window, within = divmod(place, n)
        seen = _one_row(self.call, window, within)
        if keys.permutation is None:
            return seen
        order = orders(keys)[0].to(seen.device)
        return seen.new_zeros(len(seen), keys.tokens).index_copy(1, order[window * m : (window + 1) * m], seen)

    def token_at(self, y: float, x: float) -> int | None:
        """The query token that covers a place of the image, from 0 to 1 along each side; None where none does.

        A class-attention layer has no such queries.
        """
        assert self.call is not None
        return token_at(self.call.queries, y, x)


@dataclass(frozen=True)
class Look:
    """What one image did to a model: its logits (K,), and the blocks in the order in which they ran."""

    logits: Tensor
    layers: tuple[Layer, ...]


@contextmanager
def looking(model: nn.Module, size: tuple[int, int]) -> Iterator[Callable[[Tensor], Look]]:
    """While the `with` block runs, a function from one image (1, C, h, w), as the model eats it, to a `Look`.

    One forward for each look. The model is left as it was found. All looks must come from the thread that entered.

    Args:
        model: a classifier of any family.
        size: (height, width) of the images.
    """
    with (
        eval_mode(model),
        record(model, "attention", input_size=size) as tape,
        lens(model, tape.anatomy) as read,
    ):

        def look(image: Tensor) -> Look:
            tape.clear()
            reading = read(image)
            own = {name: logits[0] for name, logits in reading.blocks.items()}
            layers = [_layer(block, tape, own.get(block.name), reading.why_not) for block in tape.anatomy.blocks]
            return Look(reading.logits[0], tuple(layers))

        yield look


def token_at(layout: TokenLayout, y: float, x: float) -> int | None:
    """The token of a grid that covers a place of the image; None where the layout has no grid.

    >>> token_at(TokenLayout((2, 4), prefix=1), 0.99, 0.3)  # row 1, column 1, behind one prefix token
    6
    """
    h, w = layout.grid
    if not h * w:
        return None
    row, column = min(int(y * h), h - 1), min(int(x * w), w - 1)
    return layout.prefix + row * w + column


def _layer(block: Block, tape: Tape, logits: Tensor | None, why_no_logits: dict[str, str]) -> Layer:
    why = block.mixer.why_no_map or ""
    call = None
    if not why:
        call, why = _last(tape.calls(block.name)[-1])
    return Layer(block.name, block.mixer.kind, call, why, logits, why_no_logits.get(block.name, ""))


def _last(call: AttentionCall) -> tuple[AttentionCall | None, str]:
    """The call of the last image of the batch, the only one that no lens has touched, or why it cannot be shown."""
    layouts = (call.queries, call.keys)
    if any(layout.permutation == () for layout in layouts):
        return (
            None,
            "the positions of its tokens are not known: padded windows (feed a size that they tile) or shuffled",
        )
    if call.queries.windows != call.keys.windows:
        return None, "its queries and keys are cut into windows differently"
    windows = call.queries.windows
    pick = {
        name: value[-windows:] for name in ("q", "k", "bias", "weights") if (value := getattr(call, name)) is not None
    }
    picked = replace(call, **pick)
    if _size(picked)[2] * windows != call.queries.tokens or _size(picked)[3] * windows != call.keys.tokens:
        return None, "its map does not have the size that its tokens have"
    return picked, ""


def _size(call: AttentionCall) -> tuple[int, int, int, int]:
    """(T, H, n, m)."""
    if call.weights is not None:
        windows, heads, n, m = call.weights.shape
        return windows, heads, n, m
    assert call.q is not None and call.k is not None
    windows, heads, n, _ = call.q.shape
    return windows, heads, n, call.k.shape[-2]


def _place(queries: TokenLayout, token: int) -> int:
    """Where a token of the full map lies among the rows, window after window."""
    if not 0 <= token < queries.tokens:
        raise VitlabError(f"there is no query token {token}; there are {queries.tokens}, 0 to {queries.tokens - 1}")
    return token if queries.permutation is None else int(orders(queries)[1][token])


def _one_row(call: AttentionCall, window: int, row: int) -> Tensor:
    """(H, m) one row of the map of one window, without making the others."""

    def cut(x: Tensor | None, rows: bool) -> Tensor | None:
        if x is None:
            return None
        x = x if len(x) == 1 else x[window : window + 1]
        return x[:, :, row : row + 1] if rows and x.shape[2] > 1 else x

    weights, q, k, bias = cut(call.weights, True), cut(call.q, True), cut(call.k, False), cut(call.bias, True)
    with torch.no_grad():
        return replace(call, weights=weights, q=q, k=k, bias=bias).map()[0, :, 0]
