"""Ablate heads, branches and blocks of a model of the page with `intervene`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from vitlab.adapters import blank_images
from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.errors import VitlabError
from vitlab.explore.conditions import Ablation, Place
from vitlab.instruments.causal_trace import blocks_with_heads
from vitlab.interventions import activations, intervene
from vitlab.interventions.units import units


@torch.no_grad()
def places(model: nn.Module, anatomy: Anatomy) -> list[dict[Place, int]]:
    """Returns what can be ablated in each block: the number of heads, and 1 for `attn`, `mlp` and `block`.

    Args:
        model: the model, in evaluation mode, without wrappers.
        anatomy: its description.
    """
    images = blank_images(model, anatomy.input_size)[:1]
    branches = {(unit.block.name, unit.kind) for unit in units(model, anatomy, images)}
    with_heads = [block for block in anatomy.blocks if block.mixer.queries is not None]
    readable = blocks_with_heads(model, anatomy, with_heads, images)
    stored = activations(model, images, block=sorted(readable), heads=True, anatomy=anatomy) if readable else None
    result: list[dict[Place, int]] = []
    for block in anatomy.blocks:
        own: dict[Place, int] = {}
        if stored is not None and block.name in readable:
            own["head"] = stored.at(block.name, "heads").shape[1]
        if (block.name, "MSA") in branches:
            own["attn"] = 1
        if (block.name, "MLP") in branches:
            own["mlp"] = 1
        if _keeps_shape(block):
            own["block"] = 1
        result.append(own)
    return result


def check(ablations: Sequence[Ablation], available: Sequence[dict[Place, int]]) -> None:
    """Raise an error for an ablation that the model does not support.

    >>> check([Ablation(0, "mlp")], [{"head": 3, "attn": 1}])
    Traceback (most recent call last):
    vitlab.core.errors.VitlabError: layer 1 has no mlp that can be ablated; it has: head, attn
    """
    for ablation in ablations:
        if not 0 <= ablation.layer < len(available):
            raise VitlabError(f"invalid layer={ablation.layer} of an ablation; expected 0 to {len(available) - 1}")
        own = available[ablation.layer]
        if ablation.at not in own:
            known = ", ".join(own) or "nothing"
            raise VitlabError(f"layer {ablation.layer + 1} has no {ablation.at} that can be ablated; it has: {known}")
        if not 0 <= ablation.head < own[ablation.at]:
            raise VitlabError(
                f"invalid head={ablation.head} of layer {ablation.layer + 1}; expected 0 to {own[ablation.at] - 1}"
            )


@contextmanager
def ablated(model: nn.Module, anatomy: Anatomy, ablations: Sequence[Ablation]) -> Iterator[None]:
    """Context manager: the model without these heads, branches and blocks.

    All branches of one kind are ablated by one `intervene`, and so are all heads of one block.
    """
    with ExitStack() as stack:
        for at in ("attn", "mlp", "block"):
            names = [anatomy.blocks[each.layer].name for each in ablations if each.at == at]
            if names:
                stack.enter_context(intervene(model, "ablate", block=names, at=at, anatomy=anatomy))
        for layer in sorted({each.layer for each in ablations if each.at == "head"}):
            heads = [each.head for each in ablations if each.at == "head" and each.layer == layer]
            name = anatomy.blocks[layer].name
            stack.enter_context(intervene(model, "ablate", block=name, head=heads, anatomy=anatomy))
        yield


def _keeps_shape(block: Block) -> bool:
    """Whether the input of a block can be passed through as its output."""
    start, end = block.tap("block.in"), block.seam("block.out")
    if start is None or end is None or end.side == "replace":
        return False
    return (start.dim, start.layout.grid, start.layout.prefix) == (end.dim, end.layout.grid, end.layout.prefix)
