"""The layout of released weights, and the operations of conversions: rename, pack and reshape."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitlab.core.errors import VitlabError

Tensors = Mapping[str, Tensor]
#: A pattern and its replacement.
Rule = tuple[str, str | Callable[[re.Match[str]], str]]

#: Token-aware pooling: a predictor in each released block, a part at `norm1` in vitlab.
TOKEN_AWARE_POOLING: Rule = (
    r"^(.*blocks\.\d+)\.dilation_predictor\.proj\.",
    r"\1.norm1.vitlab_token_aware_pooling.predictor.",
)


@dataclass(frozen=True)
class Layout:
    """How the released weights of one family are identified and converted.

    Args:
        family: name of the family, for errors.
        models: prefixes of the names of vitlab's models of this family; none if `convert` refuses these weights.
        mark: a key that only this layout has.
        convert: released weights -> vitlab's weights.
        variants: settings of vitlab's models under which they have the shapes of released ones.
    """

    family: str
    models: tuple[str, ...]
    mark: str
    convert: Callable[[Tensors], dict[str, Tensor]]
    variants: tuple[Mapping[str, Any], ...] = ({},)


def rename(tensors: Tensors, rules: Sequence[Rule]) -> dict[str, Tensor]:
    """Rename the keys: every rule is applied to every key, in order.

    >>> rename({"a.1": torch.zeros(1)}, [(r"^a\\.", "b.")])
    {'b.1': tensor([0.])}
    """
    renamed: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        for pattern, replacement in rules:
            key = re.sub(pattern, replacement, key)
        if key in renamed:
            raise VitlabError(f"two released weights map to {key!r}; this version of the layout is not supported")
        renamed[key] = tensor
    return renamed


def numbered(before: str, shift: int, after: str) -> Callable[[re.Match[str]], str]:
    """Returns a replacement that shifts the number in the first group of a pattern.

    >>> re.sub(r"^layer(\\d+)\\.", numbered("stages.", -1, "."), "layer3.0.bn")
    'stages.2.0.bn'
    """
    return lambda match: f"{before}{int(match[1]) + shift}{after}"


def pack(tensors: Tensors, first: str, second: str, whole: str) -> dict[str, Tensor]:
    """Concatenate pairs of tensors along their first axis: `X.first.Y` and `X.second.Y` become `X.whole.Y`.

    A tensor without a partner is unchanged.

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
    """Convert 1×1 convolutions whose key matches to matrices: (O, I, 1, 1) -> (O, I)."""
    return {
        key: tensor.flatten(1) if tensor.ndim == 4 and re.search(pattern, key) else tensor
        for key, tensor in tensors.items()
    }


def as_convolutions(tensors: Tensors, pattern: str) -> dict[str, Tensor]:
    """Convert matrices whose key matches to 1×1 convolutions: (O, I) -> (O, I, 1, 1)."""
    return {
        key: tensor[:, :, None, None] if tensor.ndim == 2 and re.search(pattern, key) else tensor
        for key, tensor in tensors.items()
    }
