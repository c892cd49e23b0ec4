"""A released layout of weights, and the operations that conversions are made of: rename, pack and reshape."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitlab.core.errors import VitlabError

Tensors = Mapping[str, Tensor]
#: A pattern, and what its matches are replaced by.
Rule = tuple[str, str | Callable[[re.Match[str]], str]]

#: Token-aware pooling: a predictor of its own in each released block, a part at `norm1` here.
TOKEN_AWARE_POOLING: Rule = (
    r"^(.*blocks\.\d+)\.dilation_predictor\.proj\.",
    r"\1.norm1.vitlab_token_aware_pooling.predictor.",
)


@dataclass(frozen=True)
class Layout:
    """How one family's released weights are recognised and converted.

    Args:
        family: its name, for errors.
        models: what the names of our models of this family begin with.
        mark: a key that the released weights have, and no other layout.
        convert: released weights -> ours.
    """

    family: str
    models: tuple[str, ...]
    mark: str
    convert: Callable[[Tensors], dict[str, Tensor]]


def rename(tensors: Tensors, rules: Sequence[Rule]) -> dict[str, Tensor]:
    """The same tensors under new keys: every rule is applied to every key, in order.

    >>> rename({"a.1": torch.zeros(1)}, [(r"^a\\.", "b.")])
    {'b.1': tensor([0.])}
    """
    renamed: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        for pattern, replacement in rules:
            key = re.sub(pattern, replacement, key)
        if key in renamed:
            raise VitlabError(f"two released weights would both become {key!r}; this is another version of the layout")
        renamed[key] = tensor
    return renamed


def numbered(before: str, shift: int, after: str) -> Callable[[re.Match[str]], str]:
    """A replacement that shifts the number in the first group of a pattern.

    >>> re.sub(r"^layer(\\d+)\\.", numbered("stages.", -1, "."), "layer3.0.bn")
    'stages.2.0.bn'
    """
    return lambda match: f"{before}{int(match[1]) + shift}{after}"


def pack(tensors: Tensors, first: str, second: str, whole: str) -> dict[str, Tensor]:
    """Concatenate pairs of tensors along their first axis: `X.first.Y` and `X.second.Y` become `X.whole.Y`.

    A tensor without its partner stays as it is.

    >>> pack({"a.q.bias": torch.zeros(1), "a.kv.bias": torch.ones(2)}, "q", "kv", "qkv")
    {'a.qkv.bias': tensor([0., 1., 1.])}
    """
    packed: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        head, middle, tail = _split(key, first)
        if middle and (partner := f"{head}.{second}.{tail}") in tensors:
            packed[f"{head}.{whole}.{tail}"] = torch.cat([tensor, tensors[partner]])
        else:
            head, middle, tail = _split(key, second)
            if not (middle and f"{head}.{first}.{tail}" in tensors):
                packed[key] = tensor
    return packed


def _split(key: str, name: str) -> tuple[str, str, str]:
    return key.rpartition(f".{name}.")


def as_matrices(tensors: Tensors, pattern: str) -> dict[str, Tensor]:
    """1×1 convolutions whose key matches become matrices: (O, I, 1, 1) -> (O, I)."""
    return {
        key: tensor.flatten(1) if tensor.ndim == 4 and re.search(pattern, key) else tensor
        for key, tensor in tensors.items()
    }


def as_convolutions(tensors: Tensors, pattern: str) -> dict[str, Tensor]:
    """Matrices whose key matches become 1×1 convolutions: (O, I) -> (O, I, 1, 1)."""
    return {
        key: tensor[:, :, None, None] if tensor.ndim == 2 and re.search(pattern, key) else tensor
        for key, tensor in tensors.items()
    }
