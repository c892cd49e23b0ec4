"""Attention of short sequences, alone or together with the attention diversification loss of its map.

The output is that of `scaled_dot_product_attention`, within the rounding of the dtype, except that a query all of whose
keys are masked gives NaN instead of 0. On GPUs the sums of the loss use the normalisers of the output's softmax, and
one kernel computes the gradients of both, with one softmax backward.

Shape legend: B batch, H heads, N queries, M keys, d head channels.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vitlab.kernels import attention_diversity, attention_triton
from vitlab.kernels.attention_tiles import MAXIMUM_KEYS, unsupported_size
from vitlab.kernels.availability import transformed, unavailable

OPERATOR = attention_triton.OPERATOR
MAXIMUM_SHORT_KEYS = 128  # up to here a whole head fits into the registers of four warps


def attend(q: Tensor, k: Tensor, v: Tensor, *, scale: float, bias: Tensor | None = None) -> Tensor:
    """softmax(q kᵀ · scale + bias) v, (B, H, N, d) in the memory order (B, N, H, d).

    Args:
        q, k, v: (B, H, N, d), (B, H, M, d) and (B, H, M, d), which `missing` accepts.
        scale: the factor on q kᵀ.
        bias: added to the logits, broadcastable to (B, H, N, M).
    """
    output: Tensor = attention_triton.attend(q, k, v, bias, scale, 0.0, False, False, False)[0]
    return output


def attend_diversified(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, bias: Tensor | None, tau: float, released: bool, averaged: bool
) -> tuple[Tensor, Tensor]:
    """The output of `attend`, and the loss of its map as `attention_diversity.diversity` computes it.

    Args:
        q, k, v, scale, bias: as in `attend`.
        tau: the threshold as a multiple of 1/M.
        released: whether to follow the released code instead of the paper.
        averaged: whether heads are averaged first.
    """
    threshold = tau / k.shape[2]
    output, totals, units, _ = attention_triton.attend(q, k, v, bias, scale, threshold, released, averaged, True)
    return output, attention_diversity.from_sums(totals, units, q.shape[2], threshold, released)


def missing(q: Tensor, k: Tensor, v: Tensor) -> str:
    """Returns why `attend` does not support these operands, or an empty string."""
    if transformed():
        return "torch.func and torch.export need plain operations"
    return unsupported(q, k, v) or unavailable(OPERATOR, q.device, q.dtype)


def unsupported(q: Tensor, k: Tensor, v: Tensor) -> str:
    """Returns why operands like these are not supported on any device, or an empty string.

    >>> import torch
    >>> q = torch.zeros(1, 2, 5, 64)
    >>> unsupported(q, q, q), unsupported(q.half(), q.half(), q.half())
    ('torch.float32: only operands of 16 bits are faster', '')
    """
    if any(x.ndim != 4 for x in (q, k, v)):
        return f"queries have {q.ndim} dimensions"
    if q.dtype.itemsize != 2:
        return f"{q.dtype}: only operands of 16 bits are faster"
    if not q.dtype == k.dtype == v.dtype:
        return f"queries are {q.dtype}, keys {k.dtype}, values {v.dtype}"
    if k.shape != v.shape or k.shape[:2] != q.shape[:2] or k.shape[3] != q.shape[3]:
        return f"queries are {tuple(q.shape)}, keys {tuple(k.shape)}, values {tuple(v.shape)}"
    if q.shape[2] > MAXIMUM_KEYS:  # one program walks over all queries of a head
        return f"{q.shape[2]} queries; at most {MAXIMUM_KEYS}"
    return unsupported_size(k.shape[2], q.shape[3])


class ShortAttention(TorchFunctionMode):
    """Inside a `with` block, `attend` computes attention without masks of at most `MAXIMUM_SHORT_KEYS` tokens.

    It does so where it is faster than scaled_dot_product_attention: in 16 bits, on GPUs that have the kernel.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            output = _short(*args, **kwargs)
            if output is not None:
                return output
        # torch.compile cannot trace the method, which is written in Python, while a TorchFunctionMode is active.
        return (torch.unflatten if func is Tensor.unflatten else func)(*args, **kwargs)


def _short(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    if attn_mask is not None or dropout_p or is_causal or key.ndim != 4 or key.shape[2] > MAXIMUM_SHORT_KEYS:
        return None
    if query.shape[2] > MAXIMUM_SHORT_KEYS or missing(query, key, value):
        return None
    return attend(query, key, value, scale=query.shape[-1] ** -0.5 if scale is None else scale)
