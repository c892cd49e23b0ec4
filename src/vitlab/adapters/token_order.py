"""Test whether tokens are in row-major order: change half of the image and compare the tokens.

If a model shuffles its patches (ViTMAE), tokens of both halves change.

Shape legend: B images, C channels, h w grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters.flow import Flow, zero_output
from vitlab.core.anatomy import TokenLayout

_RATIO = 2.0  # smallest ratio of the changes in the changed half and in the other half


def row_major(
    model: nn.Module, images: Tensor, layouts: Mapping[str, TokenLayout], branches: list[str]
) -> dict[str, bool]:
    """Whether the input tokens of each block are in row-major order of the image.

    Args:
        model: the model; it runs once, with the outputs of its branches set to zero, so that tokens are not mixed.
        images: (B, C, height, width), of which the first is used.
        layouts: the assumed token layout of each block, by the block's path.
        branches: paths of the attention and MLP modules.
    """
    height, width = images.shape[-2:]
    generator = torch.Generator().manual_seed(0)
    plain, other = (torch.randn(images[:1].shape, generator=generator).to(images) for _ in range(2))
    top, left = plain.clone(), plain.clone()
    top[..., : height // 2, :], left[..., : width // 2] = other[..., : height // 2, :], other[..., : width // 2]
    entries: dict[str, Tensor] = {}
    with ExitStack() as stack:
        for path in layouts:
            stack.callback(model.get_submodule(path).register_forward_pre_hook(_input_hook(entries, path)).remove)
        for path in branches:
            stack.callback(model.get_submodule(path).register_forward_hook(zero_output).remove)
        for path, module in model.named_modules():
            if path.rpartition(".")[2].startswith("vitlab_"):  # a fitted part may mix tokens
                stack.callback(module.register_forward_hook(lambda module, given, output: given[0]).remove)
        Flow(model, {"": torch.cat([plain, top, left])})
    result: dict[str, bool] = {}
    order = True
    for path, layout in layouts.items():
        top_left = _changes(entries[path], layout)
        if top_left.any():  # else the block depends on the image only through branches that are zero now
            order = _matches_halves(*top_left)
        result[path] = order
    return result


def _input_hook(entries: dict[str, Tensor], path: str) -> Callable[..., None]:
    def hook(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        entries[path] = arguments[0].clone()

    return hook


def _changes(x: Tensor, layout: TokenLayout) -> Tensor:
    """Squared change of each grid token for a change of the top half and of the left half of the image: (2, h, w)."""
    if layout.order == "BCHW":
        x = x.flatten(2).mT
    tokens = x.reshape(3, layout.tokens, -1)[:, layout.prefix :]
    return (tokens[1:] - tokens[:1]).float().square().sum(-1).reshape(2, *layout.grid)


def _matches_halves(top: Tensor, left: Tensor) -> bool:
    """Whether the tokens of the changed half changed at least `_RATIO` times as much as those of the other half."""
    h, w = top.shape
    halves = [(top[: h // 2], top[h - h // 2 :]), (left[:, : w // 2], left[:, w - w // 2 :])]
    return all(a.numel() == 0 or bool(a.sum() > _RATIO * b.sum()) for a, b in halves)
