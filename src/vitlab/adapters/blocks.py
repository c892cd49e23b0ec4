"""Descriptions that adapters share: pre-norm transformer block, MLP seams, windows, class attention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil

from torch import nn

from vitlab.adapters.flow import Flow, Shape
from vitlab.core.anatomy import SEAMS, TAPS, Block, Mixer, Seam, TokenLayout, window_permutation


def map_layout(shape: Shape) -> TokenLayout:
    """The layout of a map (B, C, h, w) of this shape, without prefix tokens."""
    return TokenLayout((shape[2], shape[3]), order="BCHW")


def mlp_seams(flow: Flow, mlp: str, layout: TokenLayout, last: str = "fc2") -> list[Seam]:
    """Front, Mid and End of the CB paper, of an MLP module whose last layer is named `last`."""
    return [
        flow.seam("mlp.in", mlp, "in", layout),
        flow.seam("mlp.mid", f"{mlp}.{last}", "in", layout),
        flow.seam("mlp.out", mlp, "out", layout),
    ]


def transformer_block(
    flow: Flow,
    path: str,
    mixer: Mixer,
    layout: TokenLayout,
    *,
    index: int,
    stage: int = 0,
    attention: str = "attn",
    norm1: str = "norm1",
    norm2: str = "norm2",
    mlp: str = "mlp",
    last: str = "fc2",
    replaceable: bool = False,
) -> Block:
    """A pre-norm block: x + attention(norm1(x)), then x + mlp(norm2(x)), all tokens in the same layout.

    Args:
        attention, norm1, norm2, mlp: names of the children.
        last: name of the MLP's last linear layer.
        replaceable: whether the attention module has the form that parts at the `attn` seam support.
    """
    seams = [
        flow.seam("attn.in", f"{path}.{norm1}", "in", layout),
        *([flow.seam("attn", f"{path}.{attention}", "replace", layout)] if replaceable else []),
        flow.seam("attn.out", f"{path}.{attention}", "out", layout),
        *mlp_seams(flow, f"{path}.{mlp}", layout, last),
        flow.seam("block.out", path, "out", layout),
    ]
    taps = [
        flow.seam("block.in", f"{path}.{norm1}", "in", layout),
        flow.seam("block.mid", f"{path}.{norm2}", "in", layout),
        flow.seam("block.out", path, "out", layout),
    ]
    return Block(path, index, stage, mixer, tuple(seams), tuple(taps))


def with_stage_ends(blocks: list[Block]) -> tuple[Block, ...]:
    """Add `stage.out` to the last block of each stage that has `block.out`; class attention is not counted."""
    last = {block.stage: block.index for block in blocks if block.mixer.kind != "class attention"}
    return tuple(
        replace(block, seams=(*block.seams, replace(out, name="stage.out")))
        if block.index == last.get(block.stage) and (out := block.seam("block.out")) is not None
        else block
        for block in blocks
    )


def holds_packed_qkv(attention: nn.Module) -> bool:
    """Whether an attention module has timm's packed qkv form, which parts at the `attn` seam support."""
    return (
        isinstance(getattr(attention, "qkv", None), nn.Linear)
        and isinstance(getattr(attention, "proj", None), nn.Linear)
        and isinstance(getattr(attention, "num_heads", None), int)
        and getattr(attention, "gate", None) is None
    )


def block_of(path: str, index: int, stage: int, mixer: Mixer, places: Iterable[Seam]) -> Block:
    """A block from one list of places, split by name into seams and taps; `block.out` is both."""
    places = tuple(places)
    seams = tuple(place for place in places if place.name in SEAMS)
    return Block(path, index, stage, mixer, seams, tuple(place for place in places if place.name in TAPS))


def window_layout(
    grid: tuple[int, int], window: tuple[int, int], shift: tuple[int, int] = (0, 0), dilated: bool = False
) -> TokenLayout:
    """Layout of a map split into windows that are folded into the batch; the order is not known if windows pad it."""
    windows = ceil(grid[0] / window[0]) * ceil(grid[1] / window[1])
    return TokenLayout(grid, windows=windows, permutation=window_permutation(grid, window, shift, dilated))


def class_attention_block(path: str, keys: TokenLayout, *, index: int, stage: int = 0) -> Block:
    """Class attention: the class token is the only query and attends to all tokens. It has no seams."""
    row = TokenLayout((0, 0), prefix=1)
    return Block(path, index, stage, Mixer("class attention", f"{path}.attn", row, keys))


def sequential_mlp_seams(flow: Flow, path: str, mlp: nn.Sequential, layout: TokenLayout) -> list[Seam]:
    """Front, Mid and End of an MLP that is an nn.Sequential, on its first leaf, last linear layer and last leaf.

    A hook on the nn.Sequential itself would run a part twice.
    """
    linear = [name for name, layer in mlp.named_children() if isinstance(layer, nn.Linear)]
    first, *_, last = dict(mlp.named_children())
    return [
        flow.seam("mlp.in", f"{path}.{first}", "in", layout),
        flow.seam("mlp.mid", f"{path}.{linear[-1]}", "in", layout),
        flow.seam("mlp.out", f"{path}.{last}", "out", layout),
    ]
