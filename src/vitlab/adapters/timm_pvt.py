"""timm's PVT-v2 and Twins: pre-norm blocks in stages that take tokens and the size of their map.

Keys are those of a reduced map (a strided convolution `sr`, or in PVT-v2-linear a pooling before it), so that the
attention map is rectangular; every second block of Twins-SVT attends inside windows instead.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import transformer_block, window_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {
    "pvt_v2": "timm/pvt_v2_b0",
    "twins_pcpvt": "timm/twins_pcpvt_small",
    "twins_svt": "timm/twins_svt_small",
}
CLASSES = (
    "timm.models.pvt_v2.PyramidVisionTransformerV2",
    "timm.models.twins.Twins",
)
ABSENT = {"attn": "attention uses a reduced map or windows, and takes their size as an argument"}


def family(model: nn.Module) -> str:
    """Twins has a variant with windows (SVT) and one without (PCPVT)."""
    if type(model).__name__ == "PyramidVisionTransformerV2":
        return "pvt_v2"
    return "twins_svt" if any(hasattr(module, "ws") for module in model.modules()) else "twins_pcpvt"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages. Twins' positional convolution after the first block of a stage is in none."""
    stages = (
        {f"stages.{i}.blocks": stage.blocks for i, stage in enumerate(model.stages)}
        if family(model) == "pvt_v2"
        else {f"blocks.{i}": stage for i, stage in enumerate(model.blocks)}
    )
    result: list[Block] = []
    for stage, (parent, layers) in enumerate(stages.items()):
        for position, block in enumerate(layers):
            path = f"{parent}.{position}"
            layout = TokenLayout(tuple(flow.argument(path, 1, "size")))
            mixer = _mixer(flow, f"{path}.attn", block.attn, layout)
            result.append(transformer_block(flow, path, mixer, layout, index=len(result), stage=stage))
    return with_stage_ends(result)


def _mixer(flow: Flow, path: str, attention: Any, layout: TokenLayout) -> Mixer:
    if hasattr(attention, "ws"):
        windows = window_layout(layout.grid, (attention.ws, attention.ws))
        return Mixer("window attention", path, windows, windows, window_axis=1)
    keys = layout if attention.sr is None else TokenLayout(flow.grid(f"{path}.sr"))
    return Mixer("attention", path, layout, keys)
