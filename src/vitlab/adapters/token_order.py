"""Whether tokens lie row by row: change half of the image and see which tokens move.

Where a model shuffles its patches (ViTMAE), tokens of either half move.

Shape legend: B images, C channels, h w grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import TokenLayout

_CLEAR = 2.0  # how much more the changed half must move than the other


def row_major(
    model: nn.Module, images: Tensor, layouts: Mapping[str, TokenLayout], branches: list[str]
) -> dict[str, bool]:
    """Whether the tokens that enter each block lie as the image does, row by row.

    Args:
        model: the model; it runs once, with its branches silenced, so that tokens are not mixed.
        images: (B, C, height, width), of which the first is used.
        layouts: how the tokens of each block are thought to lie, by the block's path.
        branches: paths of the attention and MLP modules.
    """
    height, width = images.shape[-2:]
    draw = torch.Generator().manual_seed(0)
    plain, other = (torch.randn(images[:1].shape, generator=draw).to(images) for _ in range(2))
    top, left = plain.clone(), plain.clone()
    top[..., : height // 2, :], left[..., : width // 2] = other[..., : height // 2, :], other[..., : width // 2]
    entries: dict[str, Tensor] = {}
    with ExitStack() as stack:
        for path in layouts:
            stack.callback(model.get_submodule(path).register_forward_pre_hook(_keep(entries, path)).remove)
        for path in branches:
            stack.callback(model.get_submodule(path).register_forward_hook(silence).remove)
        for path, module in model.named_modules():
            if path.rpartition(".")[2].startswith("vitlab_"):  # a part that was put in may mix tokens
                stack.callback(module.register_forward_hook(lambda module, given, output: given[0]).remove)
        Flow(model, {"": torch.cat([plain, top, left])})
    found: dict[str, bool] = {}
    order = True
    for path, layout in layouts.items():
        top_left = _moved(entries[path], layout)
        if top_left.any():  # else an earlier branch, now silent, is all that reaches this block
            order = _follows_halves(*top_left)
        found[path] = order
    return found


def _keep(entries: dict[str, Tensor], path: str) -> Callable[..., None]:
    def keep(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        entries[path] = arguments[0].clone()

    return keep


def silence(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
    """A hook: zeros instead of the first output."""
    if isinstance(output, tuple):
        return (torch.zeros_like(output[0]), *output[1:])
    return torch.zeros_like(output)


def _moved(x: Tensor, layout: TokenLayout) -> Tensor:
    """How far each token of the grid moved as the top and as the left half of the image changed: (2, h, w)."""
    if layout.order == "BCHW":
        x = x.flatten(2).mT
    tokens = x.reshape(3, layout.tokens, -1)[:, layout.prefix :]
    return (tokens[1:] - tokens[:1]).float().square().sum(-1).reshape(2, *layout.grid)


def _follows_halves(top: Tensor, left: Tensor) -> bool:
    """Whether the tokens of the changed half moved clearly more than those of the other half."""
    h, w = top.shape
    halves = [(top[: h // 2], top[h - h // 2 :]), (left[:, : w // 2], left[:, w - w // 2 :])]
    return all(a.numel() == 0 or bool(a.sum() > _CLEAR * b.sum()) for a, b in halves)
