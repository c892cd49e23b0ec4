"""Interpolate position embeddings of another image size.

Shape legend: N positions, D channels, h w grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from timm.layers import resample_abs_pos_embed
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.core.errors import VitlabError

__all__ = ["interpolated_positions"]


def interpolated_positions(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the learned position embeddings (1, N, D) of other weights for the grid of a model.

    They are interpolated as in timm (bicubic, antialiased, prefix tokens unchanged) from a square grid. Only embeddings
    whose number of positions differs are returned; anything else that does not fit is left to the caller.

    Args:
        model: the model that the weights are for.
        tensors: the weights by name.
    """
    own = model.state_dict()
    differ = {
        name: tensor
        for name, tensor in tensors.items()
        if "pos" in name and name in own and tensor.ndim == own[name].ndim == 3
        if tensor.shape[0] == own[name].shape[0] == 1 and tensor.shape[2] == own[name].shape[2]
        if tensor.shape[1] != own[name].shape[1]
    }
    if not differ or any(tensor.is_meta for tensor in own.values()):
        return {}
    place = next((place for block in describe(model).blocks for place in (*block.seams, *block.taps)), None)
    if place is None:
        return {}
    result = {}
    for name, tensor in differ.items():
        grid, positions = place.layout.grid, own[name].shape[1]
        prefix = positions - grid[0] * grid[1]
        if prefix not in (0, place.layout.prefix) or math.isqrt(max(0, tensor.shape[1] - prefix)) ** 2 != (
            tensor.shape[1] - prefix
        ):
            raise VitlabError(
                f"{name} has {tensor.shape[1]} positions, which cannot be interpolated to {grid[0]}x{grid[1]} and "
                f"{prefix} prefix tokens; use weights of a square image size"
            )
        result[name] = resample_abs_pos_embed(tensor, list(grid), num_prefix_tokens=prefix)
    return result
