"""Marker buffers: state dict keys for parts without tensors.

Context broadcasting has no parameters, so that the state dict of a model with it would have the same keys as that of
a plain model. `retrofit` registers an empty persistent buffer on such a part: its key shows that the part is present,
and loading it into a model without the part fails like any other unexpected key.

Checkpoints written before markers existed have none. A model with the part loads them, and plain ones, with a warning.
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
    """Register a marker on a part, unless its state dict already differs from that of the plain model.

    Args:
        part: the part.
        name: the name of the buffer.
        original: the module that the part replaces, or None; keys that both have do not count as a difference.
        device: device of the buffer.
    """
    if set(part.state_dict()) - set(original.state_dict() if original is not None else ()):
        return
    while hasattr(part, name):
        name += "_"
    part.register_buffer(name, torch.empty(0, dtype=torch.uint8, device=device))
    part.vitlab_marker = name
    part.register_load_state_dict_pre_hook(_before_loading)


def parts_in(keys: Iterable[str]) -> list[str]:
    """The names of the parts that have keys in a state dict, without duplicates.

    >>> parts_in(["head.bias", "blocks.0.mlp.vitlab_context_broadcast.marker", "blocks.0.attn.vitlab_local_attention"])
    ['ContextBroadcast', 'LocalAttention']
    """
    known = {snake(name): name for name in plugins.parts()}
    names = [match[1] for key in keys if (match := _PART.search(key))]
    return list(dict.fromkeys(known.get(name, name) for name in names))


def snake(name: str) -> str:
    """Convert a class name to snake case.

    >>> snake("ContextBroadcast")
    'context_broadcast'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _before_loading(part: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Warn if a state dict has no marker of a part; add it to torch's copy of the dict, so that loading succeeds."""
    key = prefix + part.vitlab_marker
    if key in state:
        return
    warnings.warn(
        f"the state dict has no marker of {part.vitlab_name}: it was saved without this part or by a version of "
        "vitlab without markers; the part remains in the model",
        stacklevel=2,
    )
    state[key] = getattr(part, part.vitlab_marker)
