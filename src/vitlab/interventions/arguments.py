"""The arguments of `intervene` in one form each: blocks, indices of heads and tokens."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.errors import VitlabError

#: Indices of tokens: a slice, a list of indices, or a mask of booleans (N,).
Tokens = slice | list[int] | Tensor


def blocks_of(anatomy: Anatomy, block: str | int | Sequence[str | int]) -> list[Block]:
    """Returns the blocks of names or indices; `"all"` for all of them."""
    if isinstance(block, str) and block == "all":
        return list(anatomy.blocks)
    given = _items(block)
    if given is None:
        given = [block]
    return [_block(anatomy, each) for each in given]


def _block(anatomy: Anatomy, given: Any) -> Block:
    if isinstance(given, str):
        return anatomy.block(given)
    index, count = _integer(given), len(anatomy.blocks)
    if index is None or not -count <= index < count:
        raise VitlabError(
            f"invalid block={_shown(given)}; expected 'all', a name such as {anatomy.blocks[0].name!r}, or an index "
            f"from 0 to {count - 1}"
        )
    return anatomy.blocks[index]


def head_indices(head: Any) -> tuple[int, ...]:
    """Returns the indices of heads that are given as one index or several.

    >>> head_indices(1), head_indices(torch.tensor(1)), head_indices(range(2))
    ((1,), (1,), (0, 1))
    """
    items = _items(head)
    found = [_integer(each) for each in ([head] if items is None else items)]
    if None in found:
        raise VitlabError(f"invalid head={_shown(head)}; expected an index, or a list of indices")
    return tuple(each for each in found if each is not None)


def token_indices(tokens: Any) -> Tokens:
    """Returns the tokens that are given as one index, several, a slice or a mask of booleans.

    >>> token_indices(3), token_indices([True, False]), token_indices(slice(1, 3))
    ([3], tensor([ True, False]), slice(1, 3, None))
    """
    if isinstance(tokens, slice):
        return tokens
    items = _items(tokens)
    if items and all(_is_boolean(each) for each in items):
        return torch.tensor([bool(each) for each in items])
    found = [_integer(each) for each in ([tokens] if items is None else items)]
    if None in found:
        raise VitlabError(
            f"invalid tokens={_shown(tokens)}; expected an index, a list of indices, a slice, or a mask of booleans"
        )
    return [each for each in found if each is not None]


def index_of(tokens: Tokens, count: int, block: str) -> slice | list[int]:
    """Returns the index of tokens in activations of `count` tokens; raises an error if they do not have them."""
    if isinstance(tokens, slice):
        return tokens
    if isinstance(tokens, Tensor):
        if len(tokens) != count:
            raise VitlabError(f"invalid tokens= for {block}, a mask of {len(tokens)} tokens; expected {count}")
        return [int(token) for token in tokens.nonzero()[:, 0]]
    if any(not -count <= token < count for token in tokens):
        raise VitlabError(f"invalid tokens={tokens} for {block}; expected indices from 0 to {count - 1}")
    return tokens


def _items(given: Any) -> list[Any] | None:
    """The items of a sequence, or of a tensor of one axis; None for anything else."""
    if isinstance(given, Tensor | np.ndarray):
        return list(given) if given.ndim == 1 else None
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes | dict) else None


def _integer(given: Any) -> int | None:
    """An integer, also as a tensor or array without axes; None for anything else, and for booleans."""
    if _is_boolean(given) or getattr(given, "shape", ()) != ():
        return None
    try:
        return operator.index(given)
    except (TypeError, RuntimeError):
        return None


def _is_boolean(given: Any) -> bool:
    return isinstance(given, bool | np.bool_) or getattr(given, "dtype", None) in (torch.bool, np.bool_)


def _shown(given: Any) -> str:
    """An argument for an error, in one short line."""
    if isinstance(given, Tensor | np.ndarray):
        return f"a {type(given).__name__} of shape {tuple(given.shape)} and type {given.dtype}"
    text = " ".join(repr(given).split())
    return text if len(text) <= 60 else f"{text[:60]}…"
