"""Losses that extensions add to a recipe: `objective.extra=("sparse(weight=0.1)",)`.

A loss is a function `loss(logits, labels, **settings)` or `loss(logits, labels, attention, **settings)` that returns a
scalar. `attention` is a list with the attention maps (B, H, N, N) of all blocks, with gradients; it is recorded only
for losses with a parameter of that name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor

from vitlab.core import plugins
from vitlab.core.bounds import Range
from vitlab.core.descriptions import origin
from vitlab.core.errors import ExtensionError
from vitlab.core.expressions import parse_call
from vitlab.core.settings import check_settings


@dataclass(frozen=True)
class ExtraLoss:
    """A loss with its weight and settings."""

    name: str
    function: Callable[..., Tensor]
    weight: float
    settings: Mapping[str, Any]

    @property
    def needs_attention(self) -> bool:
        """Whether the function takes attention maps."""
        return "attention" in inspect.signature(self.function).parameters

    def __call__(self, logits: Tensor, labels: Tensor, attention: Sequence[Tensor]) -> Tensor:
        """Returns the weighted loss of a batch."""
        given = {"attention": attention} if self.needs_attention else {}
        value = self.function(logits, labels, **given, **self.settings)
        if not isinstance(value, Tensor) or value.ndim:
            what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ExtensionError(f"{_label(self.name)} returned {what}; expected a scalar tensor")
        return self.weight * value


def extra_losses(texts: Sequence[str]) -> list[ExtraLoss]:
    """Parse the calls of losses; each takes `weight`, default 1, and its own settings."""
    losses = []
    for text in texts:
        name, settings = parse_call(text)
        function = plugins.loss(name)
        signature = inspect.signature(function)
        try:
            signature.bind_partial(None, None)
        except TypeError:
            raise ExtensionError(f"{_label(name)} takes {signature}; expected (logits, labels, **settings)") from None
        given = [*list(signature.parameters)[:2], "attention"]
        check_settings(name, function, settings, given, {"weight": Annotated[float, Range(-(10**6), 10**6)]})
        weight = settings.pop("weight", 1.0)
        losses.append(ExtraLoss(name, function, float(weight), settings))
    return losses


def _label(name: str) -> str:
    return f"loss {name!r} of {origin('losses', name)}"
