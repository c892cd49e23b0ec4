"""What the losses of a recipe need of the model's attention: ADL itself, or the maps for an extension's loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy
from vitlab.core.recipe import Objective
from vitlab.losses.attention_diversification import attention_diversification
from vitlab.recording.diversification import DiversificationTape, record_diversification
from vitlab.recording.tape import Tape, record
from vitlab.tasks.extra_losses import extra_losses

AttentionTape = Tape | DiversificationTape


@contextmanager
def attention_tape(objective: Objective, model: nn.Module, anatomy: Anatomy) -> Iterator[AttentionTape | None]:
    """Record what the losses need: attention calls if an extension's loss needs maps, ADL alone, or nothing."""
    if any(each.needs_attention for each in extra_losses(objective.extra)):
        with record(model, "attention", gradients=True, anatomy=anatomy) as calls:
            yield calls
    elif objective.diversification:
        form = objective.diversification_form
        with record_diversification(model, tau=objective.tau, form=form, anatomy=anatomy) as tape:
            yield tape
    else:
        yield None


def diversification(objective: Objective, tape: AttentionTape) -> Tensor:
    """ADL of the recorded forward, without its weight."""
    if isinstance(tape, DiversificationTape):
        return tape.loss()
    return attention_diversification(tape.self_attention(), tau=objective.tau, form=objective.diversification_form)
