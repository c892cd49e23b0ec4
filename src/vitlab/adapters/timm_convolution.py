"""timm's convolutional networks, for comparison: ResNet, ResNeXt, pre-activation ResNet and ConvNeXt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, map_layout, mlp_seams, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {
    "resnet": "timm/resnet50",
    "resnext": "timm/resnext50_32x4d",
    "preact_resnet": "timm/resnetv2_50",
    "convnext": "timm/convnext_tiny",
}
CLASSES = (
    "timm.models.resnet.ResNet",
    "timm.models.resnetv2.ResNetV2",
    "timm.models.convnext.ConvNeXt",
)
ABSENT = {
    "attn": "a convolution mixes the tokens, not attention",
    "attn.in": "a convolution mixes the tokens, not attention",
    "attn.out": "a convolution mixes the tokens, not attention",
    "mlp.in": "a ResNet's block has no MLP",
    "mlp.mid": "a ResNet's block has no MLP",
    "mlp.out": "a ResNet's block has no MLP",
}


def family(model: nn.Module) -> str:
    """ResNeXt is timm's ResNet with grouped convolutions."""
    kind = type(model).__name__
    if kind in ("ResNetV2", "ConvNeXt"):
        return {"ResNetV2": "preact_resnet", "ConvNeXt": "convnext"}[kind]
    grouped = any(getattr(conv, "groups", 1) > 1 for _, _, block in _blocks(model) for conv in _spatial(block))
    return "resnext" if grouped else "resnet"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """One residual branch per block, so that there is no `block.mid`; a strided block changes the grid."""
    result: list[Block] = []
    for stage, path, block in _blocks(model):
        after = map_layout(flow.output(path))
        depthwise = hasattr(block, "conv_dw")
        mixer = Mixer("conv", f"{path}.conv_dw" if depthwise else path, why_no_map="a convolution mixes its tokens")
        places = [
            flow.seam("block.in", path, "in", map_layout(flow.input(path))),
            *(_mlp(flow, path, block, after) if depthwise else []),
            flow.seam("block.out", path, "out", after),
        ]
        result.append(block_of(path, len(result), stage, mixer, places))
    return with_stage_ends(result)


def _spatial(block: Any) -> list[nn.Module]:
    """The convolutions in the middle of a block: one, or several in Res2Net."""
    return list(block.convs) if hasattr(block, "convs") else [block.conv2]


def _blocks(model: Any) -> Iterator[tuple[int, str, Any]]:
    """Stage, path and module of every block: `layer1` to `layer4` in a ResNet, `stages` elsewhere."""
    if hasattr(model, "stages"):
        stages = [(f"stages.{number}.blocks", stage.blocks) for number, stage in enumerate(model.stages)]
    else:
        stages = [(name, layer) for name, layer in model.named_children() if name.startswith("layer")]
    for number, (path, stage) in enumerate(stages):
        for position, block in enumerate(stage):
            yield number, f"{path}.{position}", block


def _mlp(flow: Flow, path: str, block: Any, layout: TokenLayout) -> list[Seam]:
    """ConvNeXt's MLP: linear layers on (B, h, w, D), or 1x1 convolutions."""
    return mlp_seams(flow, f"{path}.mlp", layout if block.use_conv_mlp else replace(layout, order="BHWD"))
