"""The attention diversification loss (ADL) of a model, each layer's value computed where its attention is recorded.

Autograd runs the backward of what was computed last first. If ADL is computed after the forward, its backward runs
first, and the gradients of the queries and keys of all layers wait for the layers' own backward: 11 % of the peak
memory of a step of ViT-S/16 at batch 256. Computed in the forward, the backward of a layer's value runs right before
that of its attention, so that only the gradients of one layer's queries and keys wait.
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

    def _value(self, call: AttentionCall) -> Tensor | None:
        if self._used or not torch.is_grad_enabled():
            return None
        return layer_diversification(call, tau=self._tau, form=self._form, heads=self._heads)


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

    Self-attention of all blocks is included; class attention is not. `record` states what else holds: outputs of the
    model are unchanged, and gradient checkpointing is refused.

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
    with record(
        model, "attention", blocks=names, reduce=result._value, gradients=True, anatomy=anatomy
    ) as result._tape:
        yield result
