"""FAN and FAN with TAP: queries, keys and values are packed, and 1×1 convolutions of the stem become linear layers.

Source: the keys and shapes of NVlabs/FAN and of TAPADL's copy; their code was not read.
"""

from __future__ import annotations

from torch import Tensor

from vitlab.models.published.layout import TOKEN_AWARE_POOLING, Layout, Rule, Tensors, as_matrices, pack, rename

RULES: tuple[Rule, ...] = (
    (r"^patch_embed\.backbone\.", "patch_embed."),
    (r"\.mlp\.mlp_v\.", ".mlp.mlp."),
    (r"\.mlp\.norm_v\.", ".mlp.norm."),
    (r"\.dwconv\.", ".depthwise."),
    TOKEN_AWARE_POOLING,
)


def convert(tensors: Tensors) -> dict[str, Tensor]:
    """Released FAN -> `FullyAttentionalNetwork`."""
    packed = pack(rename(tensors, RULES), "q", "kv", "qkv")
    return as_matrices(packed, r"^patch_embed\.stages\..*\.mlp\.fc\d\.weight$")


LAYOUT = Layout("FAN", ("fan_",), "blocks.0.mlp.mlp_v.fc1.weight", convert)
