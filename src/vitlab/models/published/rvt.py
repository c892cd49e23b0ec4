"""RVT and RVT with TAP: only the names differ.

Source: the keys and shapes of vtddggg/Robust-Vision-Transformer and of TAPADL's copy.
"""

from __future__ import annotations

from torch import Tensor

from vitlab.models.published.layout import TOKEN_AWARE_POOLING, Layout, Rule, Tensors, numbered, rename

RULES: tuple[Rule, ...] = (
    (r"^patch_embed\.proj\.0\.", "patch_embed.conv."),
    (r"^patch_embed\.proj\.1\.", "patch_embed.norm."),
    (r"^patch_embed\.proj\.3\.", "patch_embed.proj."),
    (r"^transformers\.", "stages."),
    (r"^pools\.(\d+)\.conv\.", numbered("stages.", 1, ".downsample.")),
    (r"\.att_mask$", ".position_importance"),
    (r"\.mlp\.bn(\d)\.", r".mlp.norm\1."),
    (r"\.dwconv\.", ".depthwise."),
    TOKEN_AWARE_POOLING,
)


def convert(tensors: Tensors) -> dict[str, Tensor]:
    """Released RVT -> `RobustVisionTransformer`."""
    return rename(tensors, RULES)


#: TAPADL's RVT-B has the convolutional MLP.
LAYOUT = Layout("RVT", ("rvt_",), "patch_embed.proj.3.weight", convert, ({}, {"conv_mlp": True}))
