"""ViT with convolutional attention: every token attends only to its k×k neighbourhood.

Source: "How Do Vision Transformers Work?" (HDVW), Sec. 2, Fig. 7: k = 3, 5 and 8 on CIFAR-100, patches of 4×4, so that
the map is 8×8 and k = 8 is global attention; a GAP head, hence no class token. Keys and values are unfolded (Yang et
al. 2019, "Convolutional Self-Attention Networks"). No parameters are added: the weights of the plain ViT fit every k.

Parameters: 5,372,836 for every k (100 classes); the paper prints none. The width is that of ViT-Ti: the paper does not
give a size. Flop counters do not count the products inside the windows (2 · 12 · 64 · 192 · k² multiply-accumulates:
2.7 M for k = 3, 7.4 M for k = 5, compared with 340 M for the rest).
"""

from __future__ import annotations

from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model, register_notrace_module
from timm.models.vision_transformer import VisionTransformer

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.models.small_images import cifar_cfg, small_vit_settings
from vitlab.modules.local_attention import LocalAttention

__all__ = ["ConvolutionalVisionTransformer"]

register_notrace_module(LocalAttention)  # it checks its arguments

PAPER = {
    "conv_vit_tiny_k3": {"params_m": None, "macs_g": None, "exact_params": None},
    "conv_vit_tiny_k5": {"params_m": None, "macs_g": None, "exact_params": None},
    "conv_vit_tiny_k8": {"params_m": None, "macs_g": None, "exact_params": None},
}


class ConvolutionalVisionTransformer(VisionTransformer):
    """timm's ViT with `LocalAttention` in every block (HDVW, Fig. 7).

    Args:
        kernel: k, the side of the neighbourhood; an even k must cover the map and means global attention.
        settings: those of timm's ViT; windows are created for `img_size`, so that other image sizes need another model.
    """

    def __init__(self, kernel: int = 3, **settings: Any) -> None:
        if settings.get("dynamic_img_size"):
            raise VitlabError("windows are created for one image size; build the model with img_size=(height, width)")
        super().__init__(**settings)
        layout = TokenLayout(self.patch_embed.grid_size, prefix=self.num_prefix_tokens)
        blocks: Any = self.blocks
        for block in blocks:
            block.attn = LocalAttention(block.attn, layout, kernel=kernel)

    def set_input_size(self, img_size: Any = None, patch_size: Any = None) -> None:
        """Not supported, because the windows depend on the image size; raises an error."""
        raise VitlabError("windows are created for one image size; build the model with img_size=(height, width)")


default_cfgs = generate_default_cfgs({name: cifar_cfg() for name in PAPER})


def _create(name: str, pretrained: bool, **settings: Any) -> ConvolutionalVisionTransformer:
    class_token = settings.get("global_pool") == "token"
    base = {"patch_size": 4, "global_pool": "avg", "class_token": class_token}
    settings = small_vit_settings(**{**base, **settings})
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
