"""The layer of Hugging Face's vision transformers, in the two forms of its versions.

Newer versions have an `mlp`; older ones, and ViLT, split it into `intermediate` and `output`, and may add the skip path
inside `output`. The form is read from the modules, not from the version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from vitlab.adapters.blocks import mlp_seams
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, Side, TokenLayout

_NORMS = (("layernorm_before", "layernorm_after"), ("norm1", "norm2"), ("layer_norm1", "layer_norm2"))
_LAST = ("fc2", "down_proj", "weights_out")  # of an MLP, or of a SwiGLU one, in newer and older versions


def layers(model: nn.Module, flow: Flow) -> Iterator[tuple[str, Any]]:
    """Paths and modules of the layers that ran, in order, at any depth; layers of the text encoder are skipped."""
    for path, module in model.named_modules():
        if "text_model" not in path and flow.ran(path) and _norms(module) and attention_name(module):
            yield path, module


def attention_name(layer: nn.Module) -> str | None:
    """The name of the attention child: `attention`, or `self_attn` in CLIP."""
    return next((name for name in ("attention", "self_attn") if hasattr(layer, name)), None)


def places(flow: Flow, path: str, layer: nn.Module, layout: TokenLayout, windowed: bool = False) -> list[Seam]:
    """Every seam and tap of a pre-norm layer with tokens in `layout`.

    Args:
        windowed: whether attention works in windows; the full map is then the input of `drop_path` after it.
    """
    before, after = _norms(layer) or ("", "")
    end = "drop_path" if windowed else attention_name(layer)
    side: Side = "in" if windowed else "out"
    return [
        flow.seam("block.in", f"{path}.{before}", "in", layout),
        flow.seam("attn.in", f"{path}.{before}", "in", layout),
        flow.seam("attn.out", f"{path}.{end}", side, layout),
        flow.seam("block.mid", f"{path}.{after}", "in", layout),
        *_mlp(flow, path, layer, layout),
        flow.seam("block.out", path, "out", layout),
    ]


def pooling_head(model: nn.Module, flow: Flow, index: int) -> list[Block]:
    """The attention pooling of SigLIP, if the model has it: one learned query. It has no seams."""
    why = "one learned query attends to all tokens"
    return [
        Block(path, index, 0, Mixer("class attention", f"{path}.attention", why_no_map=why))
        for path, module in model.named_modules()
        if hasattr(module, "probe") and flow.ran(path) and "text_model" not in path
    ]


def _norms(layer: nn.Module) -> tuple[str, str] | None:
    return next((names for names in _NORMS if all(hasattr(layer, name) for name in names)), None)


def _mlp(flow: Flow, path: str, layer: nn.Module, layout: TokenLayout) -> list[Seam]:
    mlp: nn.Module | None = getattr(layer, "mlp", None)
    if mlp is None:  # `output` adds the skip path after its `dense`
        return [
            flow.seam("mlp.in", f"{path}.intermediate", "in", layout),
            flow.seam("mlp.mid", f"{path}.output.dense", "in", layout),
            flow.seam("mlp.out", f"{path}.output.dense", "out", layout),
        ]
    last = next(name for name in _LAST if hasattr(mlp, name))
    return mlp_seams(flow, f"{path}.mlp", layout, last)
