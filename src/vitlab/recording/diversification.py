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
from vitlab.recording.attention_capture import FusedReduction
from vitlab.recording.tape import Tape, record

__all__ = ["DiversificationTape", "record_diversification"]


class _LayerValues(FusedReduction):
    """Computes the value of each layer, except in forwards without gradients and while `paused`."""

    def __init__(self, tau: float, form: Form, heads: Heads) -> None:
        check_settings(tau, form, heads)
        self.tau, self.form, self.heads = tau, form, heads
        self.paused = False

    def __call__(self, call: AttentionCall) -> Tensor | None:
        if not self._recording():
            return None
        return layer_diversification(call, tau=self.tau, form=self.form, heads=self.heads)

    def attend(self, call: AttentionCall, values: Tensor) -> tuple[Tensor, Tensor] | None:
        q, k = call.q, call.k
        if not self._recording() or q is None or k is None or attention.missing(q, k, values):
            return None
        released, averaged = self.form == "released", self.heads == "mean"
        return attention.attend_diversified(
            q, k, values, scale=call.scale, bias=call.bias, tau=self.tau, released=released, averaged=averaged
        )

    def _recording(self) -> bool:
        return not self.paused and torch.is_grad_enabled()


class DiversificationTape:
    """The values of the layers of the forwards since the last `clear`; `loss` combines them.

    Forwards without gradients, and those between `loss` and `clear`, are not recorded.
    """

    def __init__(self, values: _LayerValues) -> None:
        self._values = values
        self._tape: Tape | None = None

    def loss(self) -> Tensor:
        """ADL of the recorded forwards, a scalar with gradients, as `attention_diversification` defines it."""
        recorded = self._tape.self_attention() if self._tape is not None else []
        values: list[Any] = [value for value in recorded if value is not None]
        if not values:
            raise VitlabError(
                "no attention was recorded for the diversification loss; run the model with gradients enabled first"
            )
        self._values.paused = True
        return average_layers(values, self._values.form)

    def clear(self) -> None:
        """Delete the recorded values; recording continues."""
        self._values.paused = False
        if self._tape is not None:
            self._tape.clear()


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
    values = _LayerValues(tau, form, heads)
    result = DiversificationTape(values)
    anatomy = anatomy or describe(unwrap(model), input_size)
    blocks = [block for block in anatomy.blocks if block.mixer.queries is not None]
    names = [block.name for block in blocks if block.mixer.kind != "class attention"]
    if not names:
        raise VitlabError(f"attention diversification needs maps of self-attention; family {anatomy.family!r} has none")
    with record(model, "attention", blocks=names, reduce=values, gradients=True, anatomy=anatomy) as result._tape:
        yield result
