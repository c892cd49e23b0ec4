"""Assemblies: described by their backbone, with the paths that its modules have in the assembly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from vitlab.core.anatomy import Anatomy, Block, Seam

_CLASS = "vitlab.assemblies.assembly.Assembly"
_PREFIX = "backbone."


def is_assembly(model: nn.Module) -> bool:
    """Whether a model is an assembly; found by the name of its class, because adapters do not import assemblies."""
    return any(f"{kind.__module__}.{kind.__qualname__}" == _CLASS for kind in type(model).__mro__)


def in_assembly(model: Any, backbone: Anatomy, size: tuple[int, int]) -> Anatomy:
    """The anatomy of a backbone as that of its assembly: names and paths start with `backbone.`.

    Args:
        model: the assembly.
        backbone: the anatomy of its backbone.
        size: of the images, before the assembly pads them.
    """
    return replace(
        backbone,
        blocks=tuple(map(_block, backbone.blocks)),
        input_size=size,
        stem=tuple(map(_place, backbone.stem)),
        tapped=tuple(_PREFIX + name for name in model.tapped),
    )


def _block(block: Block) -> Block:
    mixer = block.mixer
    map_at = None if mixer.map_at is None else _PREFIX + mixer.map_at
    return replace(
        block,
        name=_PREFIX + block.name,
        mixer=replace(mixer, path=_PREFIX + mixer.path, map_at=map_at),
        seams=tuple(map(_place, block.seams)),
        taps=tuple(map(_place, block.taps)),
    )


def _place(place: Seam) -> Seam:
    return replace(place, path=_PREFIX + place.path)
