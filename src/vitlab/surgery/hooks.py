"""The hooks that run parts: module-level functions, so that a model with parts can be pickled and copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.recording.tokens import first_of, from_tokens, to_tokens, with_first

PREFIX = "vitlab_"  # of the names of parts in the module tree
KINDS = "vitlab_token_kinds"  # name of the module that the parts of a model share


def parts_at(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The parts at the input and output of a module by name, in order of insertion."""
    return ((name, child) for name, child in module.named_children() if name.startswith(PREFIX))


def run_before(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Forward pre-hook: apply the parts at the input of a module."""
    return (_apply_parts(module, "in", arguments[0]), *arguments[1:])


def run_after(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
    """Forward hook: apply the parts at the output of a module."""
    return with_first(output, _apply_parts(module, "out", first_of(output)))


def update_kinds(module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
    """Forward hook: read the kinds of the tokens of this forward."""
    getattr(module, KINDS).update(arguments, keywords, output)


def _apply_parts(module: nn.Module, side: str, x: Tensor) -> Tensor:
    """Apply the parts on one side of a module to its first tensor, in order of insertion."""
    for name, child in module.named_children():
        if name.startswith(PREFIX) and child.vitlab_side == side:
            x = _apply(child, x)
    return x


def _apply(part: Any, x: Tensor) -> Tensor:
    layout = part.vitlab_seam.layout
    if layout.order in ("BCHW", "BHWD") and hasattr(part, "layout"):
        grid = tuple(x.shape[2:]) if layout.order == "BCHW" else tuple(x.shape[1:3])
        if grid != layout.grid:
            raise VitlabError(
                f"{type(part).__name__} was fitted for a {layout.grid[0]}x{layout.grid[1]} grid, but got "
                f"{grid[0]}x{grid[1]}; retrofit again with input_size= set to the size of your images"
            )
    tokens = to_tokens(x, layout, getattr(part, "vitlab_inverse", None))
    mixed = part(tokens)
    if mixed.shape != tokens.shape:
        raise VitlabError(
            f"{type(part).__name__} returned shape {tuple(mixed.shape)}; expected its input shape {tuple(tokens.shape)}"
        )
    return from_tokens(mixed, layout, x, getattr(part, "vitlab_order", None))
