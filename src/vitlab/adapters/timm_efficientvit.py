"""timm's two EfficientViTs, both on maps (B, C, h, w).

The one of MIT has linear attention (ReLU features, no softmax). The one of Microsoft has cascaded group attention: the
heads run one after the other, each on the output of the previous one, so that there is one softmax per head.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, map_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam

FAMILIES = {"efficientvit": "timm/efficientvit_b0", "efficientvit_msra": "timm/efficientvit_m0"}
CLASSES = (
    "timm.models.efficientvit_mit.EfficientVit",
    "timm.models.efficientvit_mit.EfficientVitLarge",
    "timm.models.efficientvit_msra.EfficientVitMsra",
)
ABSENT = {
    "attn": "attention takes maps and has no packed qkv",
    **dict.fromkeys(("attn.in", "attn.out", "mlp.in", "mlp.out"), "a block without attention is a convolution"),
    "mlp.mid": "the MLP of EfficientViT has convolutions",
}
_LINEAR = "linear attention has no softmax, and its map is never computed"
_CASCADED = "each head has its own softmax and takes the output of the previous head, so that there is no single map"


def family(model: nn.Module) -> str:
    """The model of Microsoft has its own class."""
    return "efficientvit_msra" if type(model).__module__.endswith("msra") else "efficientvit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages, convolutional ones included."""
    result: list[Block] = []
    for stage, layers in enumerate(model.stages):
        for position, block in enumerate(layers.blocks):
            path = f"stages.{stage}.blocks.{position}"
            mixer, branches = _mixer(path, block)
            places = [
                flow.seam("block.in", path, "in", map_layout(flow.input(path))),
                *_branches(flow, branches),
                flow.seam("block.out", path, "out", map_layout(flow.output(path))),
            ]
            result.append(block_of(path, len(result), stage, mixer, places))
    return with_stage_ends(result)


def _mixer(path: str, block: Any) -> tuple[Mixer, tuple[str, str] | None]:
    """The mixer of a block, and the paths of its attention and MLP."""
    if hasattr(block, "context_module"):
        attention = f"{path}.context_module.main"
        return Mixer("linear attention", attention, why_no_map=_LINEAR), (attention, f"{path}.local_module.main")
    if hasattr(block, "mixer"):
        attention = f"{path}.mixer.m"
        return Mixer("window attention", attention, why_no_map=_CASCADED), (attention, f"{path}.ffn1.m")
    return Mixer("conv", path, why_no_map="a convolution mixes its tokens"), None


def _branches(flow: Flow, branches: tuple[str, str] | None) -> Iterator[Seam]:
    for name, path in zip(("attn", "mlp"), branches or (), strict=False):
        layout = map_layout(flow.input(path))
        yield flow.seam(f"{name}.in", path, "in", layout)
        yield flow.seam(f"{name}.out", path, "out", layout)
