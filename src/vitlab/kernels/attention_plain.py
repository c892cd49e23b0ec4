"""Attention and the sums that the diversification loss needs of its map, in plain torch, from dense maps.

Shape legend: B batch, H heads, N queries, M keys, d head channels, G maps: B, or B·H if heads are not averaged.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitlab.kernels.attention_diversity_plain import dense_maps, logits_backward, maps_backward, sums_of_maps


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float,
    threshold: float, released: bool, averaged: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """softmax(q kᵀ · scale + bias) v, (B, H, N, d), and the two sums of `attention_diversity_plain.row_sums`.

    >>> q = torch.zeros(1, 1, 2, 1)
    >>> output, totals, _ = attend(q, q, torch.tensor([[[[1.0], [3.0]]]]), None, 1.0, 0.0, False, True)
    >>> output.flatten(), totals
    (tensor([2., 2.]), tensor([[1., 1.]]))
    """
    maps = dense_maps(q, k, bias, scale)
    with torch.autocast(q.device.type, enabled=False):
        return (maps @ v.to(maps.dtype)).to(q.dtype), *sums_of_maps(maps, threshold, released, averaged)


def attend_backward(
    d_output: Tensor, d_sums: tuple[Tensor, Tensor] | None, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
    scale: float, threshold: float, released: bool, averaged: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k, v and of the logits, (B, H, N, M), which is that of the bias.

    They follow from the gradients of the output and of the two sums; None if the sums are not used.
    """
    maps = dense_maps(q, k, bias, scale)
    d_output = d_output.to(maps.dtype)
    with torch.autocast(q.device.type, enabled=False):
        gradient = d_output @ v.to(maps.dtype).mT
        if d_sums is not None:
            gradient = gradient + maps_backward(*d_sums, maps, threshold, released, averaged)
        d_logits = logits_backward(gradient, maps)
        dq, dk = d_logits @ k.to(maps.dtype) * scale, d_logits.mT @ q.to(maps.dtype) * scale
        return dq.to(q.dtype), dk.to(k.dtype), (maps.mT @ d_output).to(v.dtype), d_logits
