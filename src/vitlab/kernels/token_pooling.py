"""Pooling of tokens with a weight per token and branch: y_p = Σ_k s_pk · mean of x over the neighbours of branch k.

Branch 0 is the token itself. Branch k averages over the 3×3 neighbours at dilation k, or, if `nested`, over all
(2k+1)×(2k+1) neighbours. Zeros outside the map are counted. Tokens before the grid (prefix) are unchanged.

All forms have the same result. `shifted` adds shifted maps; it is the reference, runs everywhere and can be
differentiated any number of times. `banded` writes the weights of some rows into a matrix and multiplies: a matrix
product replaces about 40 passes over the tokens. `dense` is the same for `torch.compile`, with one matrix per image. On
GPUs, `triton` builds the matrix in registers.

Shape legend: B batch, N tokens, D channels, K branches, h w grid.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitlab.kernels import token_pooling_triton
from vitlab.kernels.availability import transformed, unavailable
from vitlab.kernels.token_pooling_plain import banded, dense, neighbourhood_mean, offsets, shifted

OPERATOR = "token_pooling"
_DENSE = 1024  # tokens up to which a compiled model uses one matrix per image


def pool(x: Tensor, weights: Tensor, grid: tuple[int, int], *, prefix: int = 0, nested: bool = False) -> Tensor:
    """Returns the weighted sum of the branches, in the fastest form for these tensors.

    Args:
        x: (B, prefix + h·w, D).
        weights: (B, h·w, K), or (1, h·w, K) for all images.
        grid: h and w.
        prefix: number of tokens before the grid.
        nested: whether branches are boxes of growing size instead of growing dilation.

    Returns:
        (B, prefix + h·w, D) in the dtype of x. Under autocast the products run in its lower precision.

    >>> half = torch.full((1, 9, 2), 0.5)
    >>> pool(torch.full((1, 9, 1), 9.0), half, (3, 3)).reshape(3, 3)
    tensor([[6.5000, 7.5000, 6.5000],
            [7.5000, 9.0000, 7.5000],
            [6.5000, 7.5000, 6.5000]])
    """
    dtype = _product_dtype(x)
    form, _ = choose(x.device, dtype, grid, weights.shape[-1])
    if form == "shifted":
        return shifted(x, weights.to(x.dtype), grid, prefix=prefix, nested=nested)
    with torch.autocast(x.device.type, enabled=False):
        tokens, weights = x.to(dtype), weights.to(dtype)
        if form == "triton":
            pooled: Tensor = token_pooling_triton.pool(tokens, weights, grid[1], prefix, nested)
        else:
            product = dense if form == "dense" else banded
            pooled = product(tokens, weights, grid, prefix=prefix, nested=nested)
    return pooled.to(x.dtype)


def average(x: Tensor, grid: tuple[int, int], kernel: int, *, prefix: int = 0) -> Tensor:
    """Returns the mean over the k×k neighbours of each token of the grid; zeros outside the map are counted.

    Args:
        x: (B, prefix + h·w, D).
        grid: h and w.
        kernel: k, odd.
        prefix: number of tokens before the grid, which are unchanged.

    >>> average(torch.tensor([[[9.0], [18.0], [27.0]]]), (1, 3), 3).flatten()
    tensor([3., 6., 5.])
    """
    form, _ = choose(x.device, _product_dtype(x), grid, kernel // 2 + 1)
    if form == "triton":
        last = torch.arange(kernel // 2 + 1, device=x.device) == kernel // 2
        return pool(x, last.to(x.dtype).expand(1, grid[0] * grid[1], -1), grid, prefix=prefix, nested=True)
    mean = neighbourhood_mean(x[:, prefix:].unflatten(1, grid), offsets(kernel // 2, nested=True)).flatten(1, 2)
    return torch.cat((x[:, :prefix], mean), 1) if prefix else mean


def choose(device: torch.device, dtype: torch.dtype, grid: tuple[int, int], branches: int) -> tuple[str, str]:
    """Returns the form that `pool` uses, and why it is not the Triton kernel.

    >>> choose(torch.device("cpu"), torch.float32, (14, 14), 4)
    ('banded', 'cpu has no Triton kernels')
    """
    if transformed():
        return "shifted", "torch.func and torch.export need plain operations"
    if device.type == "meta":
        return "shifted", "meta tensors"
    why = unavailable(OPERATOR, device, dtype)
    if not why and branches > token_pooling_triton.MAXIMUM_BRANCHES:
        why = f"more than {token_pooling_triton.MAXIMUM_BRANCHES} branches"
    if not why:
        return "triton", ""
    if branches > token_pooling_triton.MAXIMUM_BRANCHES:
        return "shifted", why
    if not torch.compiler.is_compiling():
        return "banded", why
    return "dense" if grid[0] * grid[1] <= _DENSE else "shifted", why


def _product_dtype(x: Tensor) -> torch.dtype:
    """The dtype of matrix products: that of autocast, if enabled."""
    kind = x.device.type
    enabled = kind != "meta" and torch.is_autocast_enabled(kind) and x.dtype != torch.float64
    return torch.get_autocast_dtype(kind) if enabled else x.dtype
