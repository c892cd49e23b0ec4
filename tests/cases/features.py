"""Tiny models for the instruments of features and predictions, their streams read plainly, and labels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import vitlab
from cases import CASES, Case
from cases.alternet import CASES as ALTERNET
from cases.hierarchical import CASES as HIERARCHICAL
from cases.others import CASES as OTHERS
from vitlab.core.anatomy import TAPS

#: A prefix of one and of two, windows, grids that shrink, maps (B, C, h, w), one branch a block, non-square images.
FEATURES = [
    case
    for case in (*CASES, *HIERARCHICAL, *OTHERS, *ALTERNET)
    if case.family in ("vit", "deit_distilled", "swin", "swin_v2", "mvitv2", "mixer", "resnet", "convnext", "alternet")
]
FAMILY = {case.family: case for case in reversed(FEATURES)}


def labels(count: int, classes: int = 7) -> Tensor:
    return torch.arange(count) * 3 % classes


def streams(model: nn.Module, images: Tensor) -> dict[tuple[str, str], Tensor]:
    """Every map of the residual stream, (B, D, h, w) in float64, prefix tokens cut off."""
    size = (int(images.shape[-2]), int(images.shape[-1]))
    found = {}
    with torch.no_grad(), vitlab.record(model, "features", at=TAPS, input_size=size) as tape:
        model(images)
    for block in tape.anatomy.blocks:
        for place in TAPS:
            tap = block.tap(place)
            if tap is not None:
                tokens = tape[block.name, place].double()[:, tap.layout.prefix :]
                found[block.name, place] = tokens.transpose(1, 2).reshape(len(images), -1, *tap.layout.grid)
    return found


def images(case: Case, count: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(count, 3, *case.size, generator=torch.Generator().manual_seed(seed))
