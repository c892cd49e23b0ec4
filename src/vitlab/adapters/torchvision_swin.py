"""torchvision's Swin and Swin-V2: attention in shifted windows; maps are (B, h, w, D) everywhere."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, sequential_mlp_seams, window_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {
    "torchvision_swin": "torchvision/swin_t",
    "torchvision_swin_v2": "torchvision/swin_v2_t",
}
CLASSES = ("torchvision.models.swin_transformer.SwinTransformer",)
ABSENT = {"attn": "attention works inside windows"}


def family(model: nn.Module) -> str:
    """Both share a model class: the class of the blocks decides."""
    post_norm = any(type(module).__name__ == "SwinTransformerBlockV2" for module in model.modules())
    return "torchvision_swin_v2" if post_norm else "torchvision_swin"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """`features` alternates between patch merging and stages; a stage is an nn.Sequential of blocks."""
    stages = [
        (f"features.{number}", layers)
        for number, layers in enumerate(model.features)
        if isinstance(layers, nn.Sequential) and hasattr(layers[0], "attn")
    ]
    result: list[Block] = []
    for stage, (prefix, layers) in enumerate(stages):
        for position, block in enumerate(layers):
            path = f"{prefix}.{position}"
            _, h, w, _ = flow.input(path)
            windows = _windows((h, w), block.attn)
            mixer = Mixer("window attention", f"{path}.attn", windows, windows)
            result.append(block_of(path, len(result), stage, mixer, _places(flow, path, block, (h, w))))
    return with_stage_ends(result)


def _windows(grid: tuple[int, int], attention: Any) -> TokenLayout:
    """The window layout; an axis of the (padded) map that one window covers is not shifted."""
    (h, w), (height, width), (down, right) = grid, attention.window_size, attention.shift_size
    return window_layout(grid, (height, width), (down if h > height else 0, right if w > width else 0))


def _places(flow: Flow, path: str, block: Any, grid: tuple[int, int]) -> list[Seam]:
    """Swin: x + attention(norm1(x)), x + mlp(norm2(x)). Swin-V2 norms after attention and after the MLP."""
    layout = TokenLayout(grid, order="BHWD")
    post_norm = type(block).__name__ == "SwinTransformerBlockV2"
    return [
        flow.seam("block.in", path, "in", layout),
        flow.seam("attn.in", f"{path}.{'attn' if post_norm else 'norm1'}", "in", layout),
        flow.seam("attn.out", f"{path}.attn", "out", layout),
        flow.seam("block.mid", f"{path}.{'mlp.0' if post_norm else 'norm2'}", "in", layout),
        *sequential_mlp_seams(flow, f"{path}.mlp", block.mlp, layout),
        flow.seam("block.out", path, "out", layout),
    ]
