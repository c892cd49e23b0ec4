"""Register built parts in the module tree of a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from vitlab.adapters import token_kinds
from vitlab.core.anatomy import Seam
from vitlab.fitted import configuration
from vitlab.markers import mark
from vitlab.modules.token_kinds import TokenKinds
from vitlab.recording.tokens import orders
from vitlab.surgery.hooks import KINDS, PREFIX, parts_at, run_after, run_before, update_kinds


def insert(model: nn.Module, seam: Seam, name: str, part: Any) -> None:
    """Register a part at a seam, in place of the attention module or with a hook."""
    part.vitlab_seam = seam
    part.vitlab_side = seam.side
    host = model.get_submodule(seam.path)
    weight = next(iter(model.parameters()), torch.empty(0))
    if seam.side == "replace":
        mark(part, PREFIX + name, host, weight.device)
        part.vitlab_original = (host,)  # in a tuple, so that it is not registered as a submodule
        parent, _, child = seam.path.rpartition(".")
        model.get_submodule(parent)._modules[child] = part
        return
    mark(part, "marker", None, weight.device)
    if seam.layout.permutation is not None and not seam.layout.shuffled:
        order, inverse = orders(seam.layout, weight.device)
        part.register_buffer("vitlab_order", order, persistent=False)
        part.register_buffer("vitlab_inverse", inverse, persistent=False)
    host.add_module(_unused_name(host, PREFIX + name), part)
    if seam.side == "in" and run_before not in host._forward_pre_hooks.values():
        host.register_forward_pre_hook(run_before)
    if seam.side == "out" and run_after not in host._forward_hooks.values():
        # Prepended, so that later hooks see the part's output: transformers collects hidden states with hooks.
        host.register_forward_hook(run_after, prepend=True)


def shared_kinds(model: nn.Module) -> TokenKinds | None:
    """The kinds of the tokens that the parts of a model share; None if the model has image tokens only."""
    found = token_kinds(model)
    if found is None:
        return None
    path, read = found
    existing: Any = getattr(model.get_submodule(path), KINDS, None)
    return existing or TokenKinds(read)


def insert_kinds(model: nn.Module, kinds: TokenKinds) -> None:
    """Register the module that reads the kinds of the tokens, once per model."""
    found = token_kinds(model)
    host = model.get_submodule(found[0]) if found is not None else model
    if not hasattr(host, KINDS):
        host.add_module(KINDS, kinds)
        host.register_forward_hook(update_kinds, with_kwargs=True)


def restored_original(part: Any) -> nn.Module:
    """The attention module that a part replaced, with the part's weights, device, precision and mode."""
    original: nn.Module = part.vitlab_original[0]
    if hasattr(part, "write_back"):  # a part with copies of weights writes their current values to the original
        part.write_back(original)
    weight = next((p for p in part.parameters() if p.is_floating_point()), None)
    if weight is not None:
        original.to(weight.device, weight.dtype)
    return original.train(part.training)


def has_same(model: nn.Module, seam: Seam, part: nn.Module, settings: dict[str, Any] | None) -> bool:
    """Whether the seam already has a part of the same class, settings and configuration."""
    existing = [vars(child) | {"part": child} for _, child in parts_at(model.get_submodule(seam.path))]
    return any(
        type(child["part"]) is type(part)
        and (child.get("vitlab_seam"), child.get("vitlab_settings")) == (seam, settings)
        and configuration(child["part"]) == configuration(part)
        for child in existing
    )


def _unused_name(module: nn.Module, name: str) -> str:
    used = dict(parts_at(module))
    if name not in used:
        return name
    return next(f"{name}_{i}" for i in range(2, len(used) + 3) if f"{name}_{i}" not in used)
