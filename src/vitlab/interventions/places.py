"""Read or change the activations at a seam of a model, as tokens (B, N, D) in full-map order.

Shape legend: B batch, N tokens, D channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block, Seam
from vitlab.core.errors import VitlabError
from vitlab.interventions.hooks import hooked
from vitlab.recording.tokens import first_of, from_tokens, to_tokens, with_first

#: Receives the activations and returns new ones, or None to leave them unchanged.
Change = Callable[[Tensor], Tensor | None]

#: Short names of seams: the outputs of the two branches of a block, and the residual stream after it.
SHORT = {"attn": "attn.out", "mlp": "mlp.out", "block": "block.out"}


def seam_of(anatomy: Anatomy, block: Block, at: str) -> Seam:
    """Returns the seam of a block where activations can be changed; raises an error if the block does not have it."""
    name = SHORT.get(at, at)
    seam = block.seam(name)
    if seam is None or seam.side == "replace":
        known = [each.name for each in block.seams if each.side != "replace"]
        why = anatomy.absent.get(name)
        reason = f" ({why})" if why else ""
        raise VitlabError(f"no activations at {name!r} of {block.name}{reason}; it has: {', '.join(known) or 'none'}")
    return seam


@contextmanager
def changed(model: nn.Module, seam: Seam, change: Change) -> Iterator[None]:
    """Context manager: apply a function to the tokens at a seam in every forward.

    Args:
        model: the model itself, without wrappers.
        seam: the place.
        change: maps tokens (B, N, D) to tokens of the same shape.
    """
    with hooked(model, seam.path, _hook(seam, change), "in" if seam.side == "in" else "out"):
        yield


def _hook(seam: Seam, change: Change) -> Callable[..., Any]:
    """A forward (pre-)hook. Its last argument, inputs or output, holds the tokens."""

    def hook(module: nn.Module, *given: Any) -> Any:
        values = given[-1]
        x = first_of(values)
        new = change(to_tokens(x, seam.layout))
        if new is None:
            return None
        return with_first(values, from_tokens(new.to(x.dtype), seam.layout, x))

    return hook
