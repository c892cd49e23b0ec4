"""timm's all-MLP models: MLP-Mixer, ResMLP and gMLP. One resolution, tokens in (B, N, D), no attention."""

from __future__ import annotations

from typing import Any

from vitlab.adapters.blocks import block_of, mlp_seams, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {
    "mixer": "timm/mixer_b16_224",
    "resmlp": "timm/resmlp_12_224",
    "gmlp": "timm/gmlp_s16_224",
}
CLASSES = ("timm.models.mlp_mixer.MlpMixer",)
ABSENT = {
    "attn": "a fixed linear map mixes the tokens, not attention",
    "attn.in": "a fixed linear map mixes the tokens, not attention",
    "attn.out": "a fixed linear map mixes the tokens, not attention",
}

#: Class of the blocks -> family, and the child that mixes tokens.
_KINDS = {
    "MixerBlock": ("mixer", "mlp_tokens"),
    "ResBlock": ("resmlp", "linear_tokens"),
    "SpatialGatingBlock": ("gmlp", "mlp_channels.gate"),
}
_WHY = "learned weights that do not depend on the image mix its tokens"


def family(model: Any) -> str:
    """The three share a model class: the class of the blocks decides."""
    return _KINDS[type(model.blocks[0]).__name__][0]


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Mixer and ResMLP have two halves; gMLP has one, an MLP whose gate mixes tokens."""
    layout = TokenLayout(flow.grid("stem.proj"))
    result = []
    for index, block in enumerate(model.blocks):
        path = f"blocks.{index}"
        mixer = Mixer("mlp", f"{path}.{_KINDS[type(block).__name__][1]}", why_no_map=_WHY)
        halves = hasattr(block, "norm2")
        places = [
            flow.seam("block.in", path, "in", layout),
            *([flow.seam("block.mid", f"{path}.norm2", "in", layout)] if halves else []),
            *mlp_seams(flow, f"{path}.mlp_channels", layout),
            flow.seam("block.out", path, "out", layout),
        ]
        result.append(block_of(path, index, 0, mixer, places))
    return with_stage_ends(result)
