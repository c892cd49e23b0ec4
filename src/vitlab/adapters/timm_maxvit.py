"""timm's MaxViT and CoAtNet, which share a class: convolutions, then attention on maps.

A MaxViT layer attends twice, in windows and over a dilated grid, after a convolution that is treated as its stem.
CoAtNet's layers are either a convolution or global attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, window_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Order, Seam, TokenLayout

FAMILIES = {
    "maxvit": "timm/maxvit_tiny_rw_224",
    "coatnet": "timm/coatnet_0_rw_224",
}
CLASSES = ("timm.models.maxxvit.MaxxVit",)
ABSENT = {"attn": "attention takes maps, not tokens"}


def family(model: nn.Module) -> str:
    """The kind of attention decides: CoAtNet's is global."""
    return "coatnet" if any(type(module).__name__ == "TransformerBlock2d" for module in model.modules()) else "maxvit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """One block per attention; CoAtNet's convolution layers are also blocks."""
    result: list[Block] = []
    for stage, layers in enumerate(model.stages):
        for position, layer in enumerate(layers.blocks):
            for path, mixer, places in _layer(flow, f"stages.{stage}.blocks.{position}", layer):
                result.append(block_of(path, len(result), stage, mixer, places))
    return with_stage_ends(result)


def _layer(flow: Flow, path: str, layer: Any) -> Iterator[tuple[str, Mixer, list[Seam]]]:
    """Name, mixer and places of each block in a layer."""
    kind = type(layer).__name__
    if kind == "MaxxVitBlock":
        order: Order = "BCHW" if layer.nchw_attn else "BHWD"
        for name in ("attn_block", "attn_grid"):
            if (half := getattr(layer, name)) is not None:
                full = _full(flow.input(f"{path}.{name}"), order)
                mixer = _partition(f"{path}.{name}.attn", full, half.partition_size, dilated=not half.partition_block)
                yield f"{path}.{name}", mixer, _places(flow, f"{path}.{name}", full, full)
    elif kind == "ParallelMaxxVitBlock":
        # Both attentions share norms, residual and MLP: the second block has the places of both.
        full, half = _full(flow.input(f"{path}.attn"), "BHWD"), layer.attn
        windows = _partition(f"{path}.attn.attn_block", full, half.partition_size, dilated=False)
        dilated = _partition(f"{path}.attn.attn_grid", full, half.partition_size, dilated=True)
        yield windows.path, windows, []
        yield dilated.path, dilated, _places(flow, f"{path}.attn", full, full)
    elif kind == "TransformerBlock2d":
        outer, inner = _full(flow.input(path), "BCHW"), _full(flow.output(path), "BCHW")
        tokens = TokenLayout(inner.grid)
        yield path, Mixer("attention", f"{path}.attn", tokens, tokens), _places(flow, path, outer, inner, layer.norm1)
    else:
        full = _full(flow.output(path), "BCHW")
        places = mlp_seams(flow, f"{path}.mlp", full) if hasattr(layer, "mlp") else []
        why = "a convolution mixes neighbours with fixed weights"
        yield path, Mixer("conv", path, why_no_map=why), [*places, flow.seam("block.out", path, "out", full)]


def _full(shape: tuple[int, ...], order: Order) -> TokenLayout:
    h, w = shape[2:] if order == "BCHW" else shape[1:3]
    return TokenLayout((h, w), order=order)


def _partition(path: str, full: TokenLayout, window: tuple[int, int], dilated: bool) -> Mixer:
    windows = window_layout(full.grid, window, dilated=dilated)
    return Mixer("window attention", path, windows, windows)


def _places(
    flow: Flow, path: str, outer: TokenLayout, inner: TokenLayout, norm1: nn.Module | None = None
) -> list[Seam]:
    """A pre-norm block on maps; at the start of a CoAtNet stage norm1 is a Sequential that pools `outer` to `inner`.

    Windows are merged before the layer scale ls1, whose input is the full map.
    """
    first = "norm1.norm" if isinstance(norm1, nn.Sequential) else "norm1"
    return [
        flow.seam("block.in", path, "in", outer),
        flow.seam("attn.in", f"{path}.{first}", "in", outer),
        flow.seam("attn.out", f"{path}.ls1", "in", inner),
        flow.seam("block.mid", f"{path}.norm2", "in", inner),
        *mlp_seams(flow, f"{path}.mlp", inner),
        flow.seam("block.out", path, "out", inner),
    ]
