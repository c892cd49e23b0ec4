"""Hugging Face's LeViT: attention and MLPs are residual layers of their own, and some attention downsamples the map."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"hf_levit": "hf/facebook/levit-128S"}
CLASSES = (
    "transformers.models.levit.modeling_levit.LevitModel",
    "transformers.models.levit.modeling_levit.LevitForImageClassification",
    "transformers.models.levit.modeling_levit.LevitForImageClassificationWithTeacher",
)
ABSENT = {"attn": "attention has a position bias, and queries and keys narrower than values"}


def family(model: nn.Module) -> str:
    """One family."""
    return "hf_levit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """An attention layer and the MLP layer after it are a block; its name is the path of the attention layer."""
    result: list[Block] = []
    root = next(path for path in flow.calls if path.endswith("encoder"))
    before = TokenLayout(flow.grid(root.removesuffix("encoder") + "patch_embeddings.embedding_layer_4"))
    for stage, layers in enumerate(model.get_submodule(root).stages):
        names = [f"{root}.stages.{stage}.layers.{position}" for position in range(len(layers.layers))]
        for path, following in zip(names, [*names[1:], ""], strict=True):
            layer: Any = model.get_submodule(path)
            subsamples = hasattr(layer, "queries_subsample")
            if not subsamples and not hasattr(layer.module, "queries_keys_values"):
                continue  # an MLP
            attention = path if subsamples else f"{path}.module"
            after = TokenLayout((layer.resolution_out,) * 2) if subsamples else before
            mixer = Mixer("attention", attention, after, before)
            mlp = following if following and hasattr(model.get_submodule(following), "module") else ""
            mlp = mlp if mlp and hasattr(model.get_submodule(mlp).module, "linear_down") else ""
            places = _places(flow, path, attention, mlp, before, after)
            result.append(block_of(path, len(result), stage + int(subsamples), mixer, places))
            before = after
    return with_stage_ends(result)


def _places(flow: Flow, path: str, attention: str, mlp: str, before: TokenLayout, after: TokenLayout) -> list[Seam]:
    """x + attention(x), or attention(x) if it downsamples, then x + mlp(x); neither branch has a norm before it."""
    places = [
        flow.seam("block.in", path, "in", before),
        flow.seam("attn.in", attention, "in", before),
        flow.seam("attn.out", attention, "out", after),
    ]
    if not mlp:
        return [*places, flow.seam("block.out", path, "out", after)]
    return [
        *places,
        flow.seam("block.mid", mlp, "in", after),
        flow.seam("mlp.in", f"{mlp}.module", "in", after),
        flow.seam("mlp.mid", f"{mlp}.module.linear_down", "in", after),
        flow.seam("mlp.out", f"{mlp}.module", "out", after),
        flow.seam("block.out", mlp, "out", after),
    ]
