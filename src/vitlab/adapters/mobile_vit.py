"""MobileViT of timm and Hugging Face: convolutional stages, and transformers on unfolded maps.

The map is split into patches of p×q positions. Position (i, j) of all patches is one sequence, so that a token attends
to the tokens at the same position of the other patches. These sequences are the windows of a dilated partition. A map
that patches do not tile is interpolated first.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, transformer_block, window_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.adapters.hf_layers import places
from vitlab.adapters.stages import stage_blocks
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {"mobilevit": "timm/mobilevit_xxs", "hf_mobilevit": "hf/apple/mobilevit-small"}
CLASSES = (
    "timm.models.byobnet.ByobNet",
    "transformers.models.mobilevit.modeling_mobilevit.MobileViTModel",
    "transformers.models.mobilevit.modeling_mobilevit.MobileViTForImageClassification",
    "transformers.models.mobilevit.modeling_mobilevit.MobileViTForSemanticSegmentation",
)
_WHY = "only the transformers of MobileViT have this seam"
ABSENT = {
    "attn": "attention works on unfolded maps",
    **dict.fromkeys(("attn.in", "attn.out", "mlp.in", "mlp.mid", "mlp.out"), _WHY),
}


def family(model: nn.Module) -> str:
    """timm's ByobNet is also the class of convolutional networks and of BoTNet."""
    if type(model).__module__.startswith("transformers"):
        return "hf_mobilevit"
    return "mobilevit" if any(type(module).__name__ == "MobileVitBlock" for module in model.modules()) else "byobnet"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """One block per transformer layer; other ByobNets are described by their stages."""
    transformers = list(_transformers(model))
    if not transformers:
        return stage_blocks(model, flow, flow.inputs)
    result: list[Block] = []
    for stage, (path, (rows, columns), layers) in enumerate(transformers):
        _, _, h, w = flow.output(f"{path}.conv_1x1")
        patches = (ceil(h / rows), ceil(w / columns))
        windows = window_layout((patches[0] * rows, patches[1] * columns), patches, dilated=True)
        for position, layer in enumerate(model.get_submodule(f"{path}.{layers}").children()):
            name = f"{path}.{layers}.{position}"
            result.append(_block(flow, name, layer, windows, len(result), stage))
    return with_stage_ends(result)


def _transformers(model: nn.Module) -> Iterator[tuple[str, tuple[int, int], str]]:
    """Path, rows and columns of a patch, and the name of the container of the layers, of each unfolding module."""
    for path, module in model.named_modules():
        if type(module).__name__ == "MobileVitBlock":
            yield path, tuple(module.patch_size), "transformer"
        elif type(module).__name__ == "MobileViTLayer":
            yield path, (module.patch_height, module.patch_width), "transformer.layer"


def _block(flow: Flow, path: str, layer: nn.Module, windows: TokenLayout, index: int, stage: int) -> Block:
    if hasattr(layer, "attn"):
        mixer = Mixer("window attention", f"{path}.attn", windows, windows)
        return transformer_block(flow, path, mixer, windows, index=index, stage=stage)
    mixer = Mixer("window attention", f"{path}.attention", windows, windows)
    return block_of(path, index, stage, mixer, places(flow, path, layer, windows))
