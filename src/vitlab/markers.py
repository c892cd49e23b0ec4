"""A mark in the state dict for parts that have no tensors of their own.

Context broadcasting has no parameters, so a checkpoint of a model with it would match a plain model key by key, and
the other way round. `retrofit` gives such a part a persistent buffer without elements: the key says that the part is
there, and loading into a model without it fails as for any other unknown key.

Checkpoints that were written before there were markers have none. A model with the part loads them, and plain ones,
with a warning.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from vitlab.core import plugins

_PART = re.compile(r"(?:^|\.)vitlab_(\w+?)(?:_\d+)?(?:\.|$)")


def mark(part: Any, name: str, original: nn.Module | None, device: torch.device) -> None:
    """Give a part a marker unless its state dict tells it from the plain model anyway.

    Args:
        part: the part.
        name: the name of the buffer.
        original: the module that the part replaces, where it does; their common keys tell nothing.
        device: where the buffer is made.
    """
    if set(part.state_dict()) - set(original.state_dict() if original is not None else ()):
        return
    while hasattr(part, name):
        name += "_"
    part.register_buffer(name, torch.empty(0, dtype=torch.uint8, device=device))
    part.vitlab_marker = name
    part.register_load_state_dict_pre_hook(_before_loading)


def parts_in(keys: Iterable[str]) -> list[str]:
    """The names of the parts whose keys are among those of a state dict, each once.

    >>> parts_in(["head.bias", "blocks.0.mlp.vitlab_context_broadcast.marker", "blocks.0.attn.vitlab_local_attention"])
    ['ContextBroadcast', 'LocalAttention']
    """
    known = {snake(name): name for name in plugins.parts()}
    found = [match[1] for key in keys if (match := _PART.search(key))]
    return list(dict.fromkeys(known.get(name, name) for name in found))


def snake(name: str) -> str:
    """The name of a class as the name of a module.

    >>> snake("ContextBroadcast")
    'context_broadcast'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _before_loading(part: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Warn where a state dict has no marker of a part, and let the load go on (torch hands over a copy of the dict)."""
    key = prefix + part.vitlab_marker
    if key in state:
        return
    warnings.warn(
        f"the state dict has no marker of {part.vitlab_name}: it was saved without this part, or by a version of "
        "vitlab that wrote no markers; the part stays in the model",
        stacklevel=2,
    )
    state[key] = getattr(part, part.vitlab_marker)
