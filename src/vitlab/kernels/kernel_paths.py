"""Which form of each operator runs for a model on a device, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from vitlab.kernels import attention, attention_diversity, attention_statistics, token_pooling, twin_products
from vitlab.kernels.availability import unavailable

_OF_ATTENTION = (
    attention.OPERATOR,
    attention_diversity.OPERATOR,
    attention_statistics.OPERATOR,
    twin_products.OPERATOR,
)


@dataclass(frozen=True)
class KernelPath:
    """One use of an operator.

    Args:
        operator: name of the operator.
        place: the module or block that uses it; empty for all.
        form: `triton`, or the plain torch form.
        reason: why it is not the Triton kernel; empty if it is.
    """

    operator: str
    place: str
    form: str
    reason: str


class Operands(Protocol):
    """The queries and keys of an attention call, None where only its map is known."""

    @property
    def q(self) -> Tensor | None:
        """(B, H, N, d)."""

    @property
    def k(self) -> Tensor | None:
        """(B, H, M, d)."""

    @property
    def bias(self) -> Tensor | None:
        """Added to the logits."""


def status(
    model: nn.Module | None = None,
    calls: Mapping[str, Operands] | None = None,
    device: torch.device | str | None = None,
) -> list[KernelPath]:
    """Returns which form of each operator runs.

    Args:
        model: a model; its parts with a kernel are listed. Without a model, the operators are listed.
        calls: attention calls by block, recorded with `gradients=True`, for the operators on queries and keys.
        device: the device that the model will run on. Default: CUDA if available.

    >>> {path.form for path in status(device="cpu")}, status(device="cpu")[0].reason
    ({'plain'}, 'cpu has no Triton kernels')
    """
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if model is None:
        reasons = {name: unavailable(name, device) for name in (token_pooling.OPERATOR, *_OF_ATTENTION)}
        return [KernelPath(name, "", "plain" if reason else "triton", reason) for name, reason in reasons.items()]
    paths = []
    for name, module in model.named_modules():
        if hasattr(module, "kernel_form"):
            paths.append(KernelPath(token_pooling.OPERATOR, name, *module.kernel_form(device)))
    for name, call in (calls or {}).items():
        for operator, reason in _of_call(call, device).items():
            paths.append(KernelPath(operator, name, "plain" if reason else "triton", reason))
    return paths


def _of_call(call: Operands, device: torch.device) -> dict[str, str]:
    """Why each operator on queries and keys does not use its kernel."""
    if call.q is None or call.k is None:
        return dict.fromkeys(_OF_ATTENTION, "the model computes its own map")
    reasons = {
        attention.OPERATOR: attention.unsupported(call.q, call.k, call.k),
        attention_diversity.OPERATOR: attention_diversity.unsupported(call.q, call.k, call.bias),
        attention_statistics.OPERATOR: attention_statistics.unsupported(call.q),
        twin_products.OPERATOR: twin_products.unsupported(call.q),
    }
    return {name: reason or unavailable(name, device) for name, reason in reasons.items()}
