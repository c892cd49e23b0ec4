"""ViT of eight layers with one extra block, attention only or MLP only, of nearly equal size.

Source: "Scratching Visual Transformer's Back with Uniform Attention" (CB), Fig. 3 and its text, which compare the two
at the same cost. The extra block is the last one, x + attention(norm(x)) or x + MLP(norm(x)). Attention has 4 d² + 4 d
parameters; an MLP of ratio 2 has 4 d² + 3 d, hence the ratio: at d = 384, 591,360 and 590,976 (plus 768 for the norm).

The width is not published: D = 384 and 6 heads, those of ViT-S (and patches of 16), are our choice; `embed_dim` and
`num_heads` change them. Parameters: 14,952,808 without the extra block, 15,544,936 with attention and 15,544,552 with
the MLP (the paper prints none).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from timm.layers import Attention, DropPath, Mlp
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from vitlab.core.errors import unknown
from vitlab.models._imagenet import imagenet_cfg

__all__ = ["ExtraBlockVisionTransformer"]

PAPER = {
    "vit_small_depth8": {"params_m": None, "macs_g": None, "exact_params": None},
    "vit_small_depth8_extra_attention": {"params_m": None, "macs_g": None, "exact_params": None},
    "vit_small_depth8_extra_mlp": {"params_m": None, "macs_g": None, "exact_params": None},
}

_LayerNorm = partial(nn.LayerNorm, eps=1e-6)


class AttentionBlock(nn.Module):
    """x + attention(norm(x)), without an MLP."""

    def __init__(self, dim: int, num_heads: int, qkv_bias: bool = True, drop_path: float = 0.0) -> None:
        super().__init__()
        self.norm1 = _LayerNorm(dim)
        self.attn = Attention(dim, num_heads, qkv_bias=qkv_bias)
        self.drop_path1 = DropPath(drop_path)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """(B, N, D) -> (B, N, D); the keywords are those of timm's blocks."""
        return x + self.drop_path1(self.attn(self.norm1(x), attn_mask=attn_mask, is_causal=is_causal))


class MlpBlock(nn.Module):
    """x + MLP(norm(x)), without attention."""

    def __init__(self, dim: int, mlp_ratio: float = 2.0, drop_path: float = 0.0) -> None:
        super().__init__()
        self.norm2 = _LayerNorm(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))
        self.drop_path2 = DropPath(drop_path)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """(B, N, D) -> (B, N, D); the keywords are those of timm's blocks and do not concern an MLP."""
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class ExtraBlockVisionTransformer(VisionTransformer):
    """timm's ViT with an extra attention or MLP block at its end (CB, Fig. 3).

    Args:
        extra: `attention`, `mlp`, or None for the plain ViT.
        extra_mlp_ratio: expansion of the extra MLP.
        settings: those of timm's ViT.
    """

    def __init__(
        self,
        extra: str | None = None,
        extra_mlp_ratio: float = 2.0,
        embed_dim: int = 384,
        num_heads: int = 6,
        qkv_bias: bool = True,
        drop_path_rate: float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__(
            embed_dim=embed_dim, num_heads=num_heads, qkv_bias=qkv_bias, drop_path_rate=drop_path_rate, **settings
        )
        if extra is None:
            return
        if extra not in ("attention", "mlp"):
            raise unknown("extra block", extra, ["attention", "mlp"])
        block = (
            AttentionBlock(embed_dim, num_heads, qkv_bias, drop_path_rate)
            if extra == "attention"
            else MlpBlock(embed_dim, extra_mlp_ratio, drop_path_rate)
        )
        block.to(device=settings.get("device"), dtype=settings.get("dtype"))
        self.blocks.append(block.apply(self._init_weights))
        self.feature_info.append({**self.feature_info[-1], "module": f"blocks.{len(self.blocks) - 1}"})


default_cfgs = generate_default_cfgs({name: imagenet_cfg() for name in PAPER})


def _create(name: str, pretrained: bool, **settings: Any) -> ExtraBlockVisionTransformer:
    settings = {"depth": 8, "dynamic_img_size": True, **settings}
    features = {"out_indices": settings.pop("out_indices", 3), "feature_cls": "getter"}
    return build_model_with_cfg(ExtraBlockVisionTransformer, name, pretrained, feature_cfg=features, **settings)


@register_model
def vit_small_depth8(pretrained: bool = False, **settings: Any) -> ExtraBlockVisionTransformer:
    """ViT-S of eight layers, without an extra block."""
    return _create("vit_small_depth8", pretrained, **settings)


@register_model
def vit_small_depth8_extra_attention(pretrained: bool = False, **settings: Any) -> ExtraBlockVisionTransformer:
    """ViT-S of eight layers and an extra attention block."""
    return _create("vit_small_depth8_extra_attention", pretrained, **{"extra": "attention", **settings})


@register_model
def vit_small_depth8_extra_mlp(pretrained: bool = False, **settings: Any) -> ExtraBlockVisionTransformer:
    """ViT-S of eight layers and an extra MLP block of ratio 2."""
    return _create("vit_small_depth8_extra_mlp", pretrained, **{"extra": "mlp", **settings})
