"""timm's Swin and Swin-V2: attention in shifted windows. Tokens are (B, h, w, D), and (B, N, D) in the MLP."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, window_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {
    "swin": "timm/swin_tiny_patch4_window7_224",
    "swin_v2": "timm/swinv2_tiny_window8_256",
}
CLASSES = (
    "timm.models.swin_transformer.SwinTransformer",
    "timm.models.swin_transformer_v2.SwinTransformerV2",
)
ABSENT = {
    "attn": "attention works inside windows",
    "attn.in": "Swin-V2 norms after attention, and its windows pad the map",
}


def family(model: nn.Module) -> str:
    """Swin-V2 has its own class."""
    return "swin_v2" if type(model).__module__.endswith("_v2") else "swin"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages; every second one has shifted windows, if the map is larger than a window."""
    describe = _post_norm if family(model) == "swin_v2" else _pre_norm
    result: list[Block] = []
    for stage, layers in enumerate(model.layers):
        for position, block in enumerate(layers.blocks):
            path = f"layers.{stage}.blocks.{position}"
            _, h, w, _ = flow.input(path)
            windows = window_layout((h, w), block.window_size, block.shift_size)
            mixer = Mixer("window attention", f"{path}.attn", windows, windows)
            result.append(block_of(path, len(result), stage, mixer, describe(flow, path, windows)))
    return with_stage_ends(result)


def _pre_norm(flow: Flow, path: str, windows: TokenLayout) -> list[Seam]:
    """Swin: x + attention(norm1(x)), x + mlp(norm2(x)). The input of drop_path1 is the full map."""
    full, tokens = TokenLayout(windows.grid, order="BHWD"), TokenLayout(windows.grid)
    return [
        flow.seam("block.in", path, "in", full),
        flow.seam("attn.in", f"{path}.norm1", "in", full),
        flow.seam("attn.out", f"{path}.drop_path1", "in", full),
        flow.seam("block.mid", f"{path}.norm2", "in", tokens),
        *mlp_seams(flow, f"{path}.mlp", tokens),
        flow.seam("block.out", path, "out", full),
    ]


def _post_norm(flow: Flow, path: str, windows: TokenLayout) -> list[Seam]:
    """Swin-V2: x + norm1(attention(x)), x + norm2(mlp(x)). The input of attention exists only in windows."""
    full, tokens = TokenLayout(windows.grid, order="BHWD"), TokenLayout(windows.grid)
    tiled = windows.permutation != ()
    return [
        flow.seam("block.in", path, "in", full),
        *([flow.seam("attn.in", f"{path}.attn", "in", windows)] if tiled else []),
        flow.seam("attn.out", f"{path}.norm1", "in", full),
        flow.seam("block.mid", f"{path}.mlp", "in", tokens),
        *mlp_seams(flow, f"{path}.mlp", tokens),
        flow.seam("block.out", path, "out", full),
    ]
