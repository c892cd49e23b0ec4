"""T2T-ViT_t: the tokens-to-token module is the patch embedding in vitlab.

Source: the keys and shapes of yitu-opensource/T2T-ViT. The variants with a Performer are not supported.
"""

from __future__ import annotations

from torch import Tensor

from vitlab.models.published.layout import Layout, Rule, Tensors, rename

RULES: tuple[Rule, ...] = (
    (r"^tokens_to_token\.attention(\d)\.", r"patch_embed.layer\1."),
    (r"^tokens_to_token\.project\.", "patch_embed.proj."),
)


def convert(tensors: Tensors) -> dict[str, Tensor]:
    """Released T2T-ViT_t -> `TokensToTokenVisionTransformer`."""
    return rename(tensors, RULES)


#: T2T-ViT_t-24, -14 and -19.
SIZES: tuple[dict[str, int], ...] = (
    {},
    {"embed_dim": 384, "depth": 14, "num_heads": 6},
    {"embed_dim": 448, "depth": 19, "num_heads": 7},
)
LAYOUT = Layout("T2T-ViT", ("t2t_vit_",), "tokens_to_token.project.weight", convert, SIZES)
