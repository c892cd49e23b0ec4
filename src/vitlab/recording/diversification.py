"""The attention diversification loss (ADL) of a model, each layer's value computed where its attention is recorded.

Autograd runs the backward of what was computed last first. If ADL is computed after the forward, its backward runs
first, and the gradients of the queries and keys of all layers wait for the layers' own backward: 11 % of the peak
memory of a step of ViT-S/16 at batch 256. Computed in the forward, the backward of a layer's value runs right before
that of its attention, so that only the gradients of one layer's queries and keys wait.

On GPUs in 16 bits one operator computes a layer's attention and its ADL (`kernels/attention.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.adapters.wrappers import unwrap
from vitlab.core.anatomy import Anatomy
from vitlab.core.bounds import Weight
from vitlab.core.errors import VitlabError
from vitlab.kernels import attention
from vitlab.losses.attention_diversification import (
    Form,
    Heads,
    average_layers,
    check_settings,
    layer_diversification,
)
from vitlab.recording.attention_call import AttentionCall
from vitlab.recording.tape import Tape, record

__all__ = ["DiversificationTape", "record_diversification"]


class DiversificationTape:
    """The values of the layers of the forwards since the last `clear`; `loss` combines them.

    Forwards without gradients, and those between `loss` and `clear`, are not recorded.
    """

    def __init__(self, tau: float, form: Form, heads: Heads) -> None:
        check_settings(tau, form, heads)
        self._tau, self._form, self._heads = tau, form, heads
        self._tape: Tape | None = None
        self._used = False

    def loss(self) -> Tensor:
        """ADL of the recorded forwards, a scalar with gradients, as `attention_diversification` defines it."""
        recorded = self._tape.self_attention() if self._tape is not None else []
        values: list[Any] = [value for value in recorded if value is not None]
        if not values:
            raise VitlabError(
                "no attention was recorded for the diversification loss; run the model with gradients enabled first"
            )
        self._used = True
        return average_layers(values, self._form)

    def clear(self) -> None:
        """Delete the recorded values; recording continues."""
        self._used = False
        if self._tape is not None:
            self._tape.clear()

    def __call__(self, call: AttentionCall) -> Tensor | None:
        """The value of a layer whose attention the model computes; None if it is not recorded."""
        if not self._recording():
            return None
        return layer_diversification(call, tau=self._tau, form=self._form, heads=self._heads)

    def attend(self, call: AttentionCall, values: Tensor) -> tuple[Tensor, Tensor] | None:
        """The output of a layer's attention and its value, from one operator; None where there is no kernel for it."""
        q, k = call.q, call.k
        if not self._recording() or q is None or k is None or attention.missing(q, k, values, call.bias):
            return None
        released, averaged = self._form == "released", self._heads == "mean"
        return attention.attend_diversified(
            q, k, values, scale=call.scale, bias=call.bias, tau=self._tau, released=released, averaged=averaged
        )

    def _recording(self) -> bool:
        return not self._used and torch.is_grad_enabled()


@contextmanager
def record_diversification(
    model: nn.Module,
    *,
    tau: Weight = 2.0,
    form: Form = "paper",
    heads: Heads = "mean",
    input_size: int | tuple[int, int] | None = None,
    anatomy: Anatomy | None = None,
) -> Iterator[DiversificationTape]:
    """Record the attention diversification loss of a model inside a `with` block.

    Self-attention of all blocks is included; class attention is not. Gradient checkpointing is refused, as by `record`.
    Outputs of the model are unchanged, except on GPUs in bfloat16 and float16: in forwards with gradients a layer with
    at most 256 keys of at most 64 channels computes attention and ADL in one operator, whose output differs from that
    of scaled_dot_product_attention by rounding (at most 1 % of the largest value in bfloat16).

    Args:
        model: any model that `describe` supports; it may be compiled or wrapped in DDP.
        tau, form, heads: see `attention_diversification`.
        input_size, anatomy: see `record`.

    Yields:
        The tape. Its `loss()` is added to the loss of the batch; call `clear()` after each batch.
    """
    result = DiversificationTape(tau, form, heads)
    anatomy = anatomy or describe(unwrap(model), input_size)
    blocks = [block for block in anatomy.blocks if block.mixer.queries is not None]
    names = [block.name for block in blocks if block.mixer.kind != "class attention"]
    if not names:
        raise VitlabError(f"attention diversification needs maps of self-attention; family {anatomy.family!r} has none")
    with record(model, "attention", blocks=names, reduce=result, gradients=True, anatomy=anatomy) as result._tape:
        yield result
