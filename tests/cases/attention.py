"""Tiny models with sharp attention, their full maps, and the state that a measurement must not change."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import vitlab
from cases import CASES, Case
from cases.hierarchical import CASES as HIERARCHICAL
from vitlab.core.anatomy import TokenLayout

#: A class token, two prefix tokens, shifted windows, rectangular maps: every way in which rows and columns can lie.
ATTENTION = [
    case
    for case in (*CASES, *HIERARCHICAL)
    if case.family in ("vit", "deit_distilled", "swin", "pvt_v2", "mvitv2", "hiera")
]
FAMILY = {case.family: case for case in ATTENTION}


def sharp(case: Case) -> nn.Module:
    """The model with larger queries and keys: random ones give uniform attention, which would show little."""
    model = case.model()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.rpartition(".")[0].endswith(("qkv", ".q", ".kv")):
                parameter.mul_(12)
    return model


def pictures(case: Case, count: int = 2, seed: int = 1) -> Tensor:
    """Images whose pixels, at mean and std ½, lie in [0, 1]."""
    return torch.rand(count, 3, *case.size, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def maps(model: nn.Module, images: Tensor) -> dict[str, tuple[Tensor, TokenLayout, TokenLayout]]:
    """The full maps (B·T, H, N, M) in float64, and the layouts of their rows and columns."""
    size = (int(images.shape[-2]), int(images.shape[-1]))
    with vitlab.record(model, "attention", input_size=size) as tape, torch.no_grad():
        model(images)
    return {
        block.name: (tape[block.name].double(), block.mixer.queries, block.mixer.keys) for block in tape.anatomy.blocks
    }


def dense(weights: Tensor, queries: TokenLayout, keys: TokenLayout) -> Tensor:
    """Windows put back by loops, one entry at a time: (B, H, N, M) in full-map order, prefix tokens first."""
    windows = queries.windows
    rows, columns = ([*range(x.prefix), *(x.prefix + i for i in order(x))] for x in (queries, keys))
    full = torch.zeros(len(weights) // windows, weights.shape[1], queries.tokens, keys.tokens, dtype=weights.dtype)
    for i in range(len(weights)):
        image, window = divmod(i, windows)
        for a in range(weights.shape[2]):
            for b in range(weights.shape[3]):
                row, column = rows[window * weights.shape[2] + a], columns[window * weights.shape[3] + b]
                full[image, :, row, column] = weights[i, :, a, b]
    return full


def order(layout: TokenLayout) -> list[int]:
    return list(range(layout.grid[0] * layout.grid[1])) if layout.permutation is None else list(layout.permutation)


def state(model: nn.Module) -> list[Any]:
    """All state that an instrument could change, as comparable data."""
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks), m.training) for m in model.modules()]
    tensors = [(name, value.sum().item(), value.requires_grad) for name, value in model.named_parameters()]
    grads = [None if p.grad is None else p.grad.sum().item() for p in model.parameters()]
    buffers = [(name, value.double().sum().item()) for name, value in model.named_buffers()]
    return [hooks, tensors, grads, buffers, torch.get_rng_state().tolist(), torch.is_grad_enabled()]
