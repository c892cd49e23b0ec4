"""timm's plain vision transformer and its variants: one resolution, tokens in (B, N, D)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from vitlab.adapters.blocks import holds_packed_qkv, mlp_seams, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {
    "vit": "timm/vit_tiny_patch16_224",
    "deit": "timm/deit_tiny_patch16_224",
    "deit_distilled": "timm/deit_tiny_distilled_patch16_224",
    "deit3": "timm/deit3_small_patch16_224",
    "naflexvit": "timm/naflexvit_base_patch16_gap",
}
CLASSES = ("timm.models.vision_transformer.VisionTransformer", "timm.models.naflexvit.NaFlexVit")
ABSENT: dict[str, str] = {}


def family(model: nn.Module) -> str:
    """The name of the architecture distinguishes DeiT from ViT, which share a class."""
    architecture = (getattr(model, "pretrained_cfg", None) or {}).get("architecture", "")
    if type(model).__name__ == "NaFlexVit":
        return "naflexvit"
    if "distilled" in type(model).__name__.lower():
        return "deit_distilled"
    return architecture.partition("_")[0] if architecture.startswith(("deit_", "deit3_")) else "vit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Pre-norm blocks, post-norm ones (`ResPostBlock`), parallel ones (`ParallelThingsBlock`), and blocks whose
    MLP runs in parallel with attention, which have no inner seams.
    """
    layout = TokenLayout(_grid(model, flow), prefix=model.num_prefix_tokens)
    result: list[Block] = []
    for position, block in enumerate(model.blocks):
        path = f"blocks.{position}"
        if type(block).__name__ == "ParallelThingsBlock":
            result += _parallel(flow, path, block, layout, len(result))
        elif type(block).__name__ in ("Block", "EvaBlock"):
            result.append(_pre_norm(flow, path, block.attn, block.mlp, layout, index=len(result)))
        else:
            result.append(_other(flow, path, block, layout, len(result)))
    return with_stage_ends(result)


def _grid(model: Any, flow: Flow) -> tuple[int, int]:
    """The grid of the patch embedding; NaFlexViT splits images into patches before a linear layer."""
    if hasattr(model, "embeds"):
        (height, width), (high, wide) = flow.input("")[-2:], model.embeds.patch_size
        return height // high, width // wide
    paths = ("patch_embed.proj", "patch_embed.backbone")  # the second is ViTamin's
    return flow.grid(next(path for path in paths if flow.ran(path)))


def _mixer(path: str, attention: nn.Module, layout: TokenLayout) -> Mixer:
    """A mixer with one softmax over all tokens, or with the reason why there is no map."""
    if type(attention).__name__ in ("DiffAttention", "DiffParallelScalingBlock"):
        why = "differential attention subtracts one softmax from another, so that its weights are not a distribution"
        return Mixer("attention", path, why_no_map=why)
    return Mixer("attention", path, layout, layout)


def _pre_norm(
    flow: Flow,
    path: str,
    attention: nn.Module,
    mlp: nn.Module,
    layout: TokenLayout,
    *,
    index: int,
    attends: str = "",
    feeds: str = "",
) -> Block:
    """A pre-norm block; `attends` and `feeds` are path prefixes of attention and MLP, with a final dot."""
    mixer = _mixer(f"{path}.{attends}attn", attention, layout)
    return transformer_block(
        flow,
        path,
        mixer,
        layout,
        index=index,
        attention=f"{attends}attn",
        norm1=f"{attends}norm" if attends else "norm1",
        norm2=f"{feeds}norm" if feeds else "norm2",
        mlp=f"{feeds}mlp",
        last="fc2" if hasattr(mlp, "fc2") else "w2",  # ViTamin's gated MLP
        replaceable=mixer.queries is not None and holds_packed_qkv(attention) and not hasattr(attention, "rotate_half"),
    )


def _parallel(flow: Flow, path: str, block: Any, layout: TokenLayout, index: int) -> list[Block]:
    """One block per attention. All have the same input and their outputs are added; the same holds for the MLPs.

    Therefore only the last block has taps and the seam `block.out`.
    """
    result = []
    for i, (branch, feed) in enumerate(zip(block.attns, block.ffns, strict=True)):
        names = {"attends": f"attns.{i}.", "feeds": f"ffns.{i}."}
        one = _pre_norm(flow, path, branch.attn, feed.mlp, layout, index=index + i, **names)
        one = replace(one, name=f"{path}.attns.{i}")
        if i + 1 < len(block.attns):
            one = replace(one, seams=tuple(seam for seam in one.seams if seam.name != "block.out"), taps=())
        result.append(one)
    return result


def _other(flow: Flow, path: str, block: Any, layout: TokenLayout, index: int) -> Block:
    """A post-norm block, or one whose MLP runs in parallel with attention."""
    out = flow.seam("block.out", path, "out", layout)
    if type(block).__name__ != "ResPostBlock":
        return Block(path, index, 0, _mixer(path, block, layout), (out,), (out,))
    seams = (
        flow.seam("attn.in", f"{path}.attn", "in", layout),
        flow.seam("attn.out", f"{path}.attn", "out", layout),
        *mlp_seams(flow, f"{path}.mlp", layout),
        out,
    )
    return Block(path, index, 0, _mixer(f"{path}.attn", block.attn, layout), seams, (out,))
