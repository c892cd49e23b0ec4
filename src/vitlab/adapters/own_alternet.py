"""vitlab's AlterNet and pre-activation ResNet: convolution or window attention blocks on (B, C, h, w) maps."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, map_layout, window_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam

FAMILIES = {
    "alternet": "vitlab/alternet50_cifar"
}  # the family of vitlab's pre-activation ResNet is in timm_convolution
CLASSES = (
    "vitlab.models.alternet.AlterNet",
    "vitlab.models.preact_resnet.PreActResNet",
)
ABSENT = {
    "attn": "attention works inside windows, and has more output than input channels",
    "attn.in": "only the MSA blocks of an AlterNet have attention",
    "attn.out": "only the MSA blocks of an AlterNet have attention",
    "mlp.in": "convolution and MSA blocks have no MLP",
    "mlp.mid": "convolution and MSA blocks have no MLP",
    "mlp.out": "convolution and MSA blocks have no MLP",
}


def family(model: nn.Module) -> str:
    """Pre-activation ResNet is also a family of timm."""
    return "alternet" if type(model).__name__ == "AlterNet" else "preact_resnet"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages; each has one residual branch, so that there is no `block.mid`."""
    result: list[Block] = []
    for stage, layers in enumerate(model.stages):
        for position, block in enumerate(layers):
            path = f"stages.{stage}.{position}"
            places = [
                flow.seam("block.in", path, "in", map_layout(flow.input(path))),
                *(_attention(flow, path, block) if hasattr(block, "attn") else []),
                flow.seam("block.out", path, "out", map_layout(flow.output(path))),
            ]
            result.append(block_of(path, len(result), stage, _mixer(flow, path, block), places))
    return with_stage_ends(result)


def _mixer(flow: Flow, path: str, block: Any) -> Mixer:
    if not hasattr(block, "attn"):
        return Mixer("conv", path, why_no_map="a convolution mixes its tokens")
    h, w = flow.grid(path)
    largest = block.attn.window_size
    windows = window_layout((h, w), (min(largest, h), min(largest, w)))
    return Mixer("window attention", f"{path}.attn", windows, windows)


def _attention(flow: Flow, path: str, block: nn.Module) -> list[Seam]:
    """The seams at the ends of the branch: norm1 and attn, or, with post-activation, conv1 and norm2."""
    first, last = ("conv1", "norm2") if type(block).__name__ == "PostActAttentionBlock" else ("norm1", "attn")
    layout = map_layout(flow.output(path))
    return [
        flow.seam("attn.in", f"{path}.{first}", "in", layout),
        flow.seam("attn.out", f"{path}.{last}", "out", layout),
    ]
