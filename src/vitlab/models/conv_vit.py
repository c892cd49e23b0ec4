"""The ViT whose attention is convolutional: every token attends to its k×k neighbourhood only.

Source: "How Do Vision Transformers Work?" (HDVW), Sec. 2, Fig. 7: k = 3, 5 and 8 on CIFAR-100, patches of 4×4, so that
the map is 8×8 and k = 8 is global attention; a GAP head, hence no class token. Keys and values are unfolded (Yang et
al. 2019, "Convolutional Self-Attention Networks"), no parameter is added: all k share the weights of the plain ViT.

Parameters: 5,372,836 for every k (100 classes); the paper prints none. The width is that of ViT-Ti: the paper says ViT
without a size. A flop counter does not see the products inside the windows (2 · 12 · 64 · 192 · k²
multiply-accumulates: 2.7 M for k = 3, 7.4 M for k = 5, beside 340 M).
"""

from __future__ import annotations

from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.models.small_images import cifar_cfg, small_vit_settings
from vitlab.modules.local_attention import LocalAttention

__all__ = ["ConvolutionalVisionTransformer"]

PAPER = {
    "conv_vit_tiny_k3": {"params_m": None, "macs_g": None, "exact_params": None},
    "conv_vit_tiny_k5": {"params_m": None, "macs_g": None, "exact_params": None},
    "conv_vit_tiny_k8": {"params_m": None, "macs_g": None, "exact_params": None},
}


class ConvolutionalVisionTransformer(VisionTransformer):
    """timm's ViT with `LocalAttention` in every block (HDVW, Fig. 7).

    Args:
        kernel: k, the side of the neighbourhood; an even k must cover the map and means global attention.
        settings: those of timm's ViT; windows are laid out for `img_size`, so other sizes are built, not fed.
    """

    def __init__(self, kernel: int = 3, **settings: Any) -> None:
        if settings.get("dynamic_img_size"):
            raise VitlabError("windows are laid out for one image size; build the model with img_size=(height, width)")
        super().__init__(**settings)
        layout = TokenLayout(self.patch_embed.grid_size, prefix=self.num_prefix_tokens)
        blocks: Any = self.blocks
        for block in blocks:
            block.attn = LocalAttention(block.attn, layout, kernel=kernel)

    def set_input_size(self, img_size: Any = None, patch_size: Any = None) -> None:
        """Refused: the windows would still be those of the old size."""
        raise VitlabError("windows are laid out for one image size; build the model with img_size=(height, width)")


default_cfgs = generate_default_cfgs({name: cifar_cfg() for name in PAPER})


def _create(name: str, pretrained: bool, **settings: Any) -> ConvolutionalVisionTransformer:
    settings = small_vit_settings(**{"patch_size": 4, "global_pool": "avg", **settings})
    features = {"out_indices": settings.pop("out_indices", 3), "feature_cls": "getter"}
    return build_model_with_cfg(ConvolutionalVisionTransformer, name, pretrained, feature_cfg=features, **settings)


@register_model
def conv_vit_tiny_k3(pretrained: bool = False, **settings: Any) -> ConvolutionalVisionTransformer:
    """ViT-Ti with neighbourhoods of 3×3."""
    return _create("conv_vit_tiny_k3", pretrained, **{"kernel": 3, **settings})


@register_model
def conv_vit_tiny_k5(pretrained: bool = False, **settings: Any) -> ConvolutionalVisionTransformer:
    """ViT-Ti with neighbourhoods of 5×5."""
    return _create("conv_vit_tiny_k5", pretrained, **{"kernel": 5, **settings})


@register_model
def conv_vit_tiny_k8(pretrained: bool = False, **settings: Any) -> ConvolutionalVisionTransformer:
    """ViT-Ti with k = 8, which on its map of 8×8 is global attention."""
    return _create("conv_vit_tiny_k8", pretrained, **{"kernel": 8, **settings})
