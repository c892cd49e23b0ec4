"""Models for images of 32×32 pixels: timm's classes with the settings of HDVW.

Source: "How Do Vision Transformers Work?" (HDVW), App. A: patches of 2×2 for ViT and PiT, of 1×1 with windows of 4×4
for Swin; the released code has no bias on queries, keys and values in ViT and Swin, and gives PiT a patch of 2 at
stride 1. `patch_size` (2, 4 or 8: Fig. C.3), `num_heads` and `embed_dim` (Figs. C.5 and C.6), `depth` and `global_pool`
are settings. A ViT with `global_pool='avg'` (GAP, Fig. 6) has no class token unless `class_token=True`.

Parameters for 100 classes, as in the released classes: ViT-Ti 5,403,172, ViT-S 21,423,076, PiT-Ti 4,582,436, Mixer-Ti
4,769,636 and Swin-Ti 27,562,126. Twins-S has 23,596,196; its settings (those of Twins-SVT-S, patch and windows
as in Swin) are not published: our choice. The norm follows GAP, as in timm: our choice.

PiT, Swin, Mixer and ViT are built for one image size: pass `img_size=(h, w)` for another one (ViT: or
`dynamic_img_size=True`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.mlp_mixer import MlpMixer
from timm.models.pit import PoolingVisionTransformer
from timm.models.swin_transformer import SwinTransformer
from timm.models.twins import Twins
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from vitlab.core.errors import VitlabError

__all__: list[str] = []

PAPER = {
    "vit_tiny_cifar": {"params_m": None, "macs_g": None, "exact_params": 5_403_172},
    "vit_small_cifar": {"params_m": None, "macs_g": None, "exact_params": 21_423_076},
    "pit_tiny_cifar": {"params_m": None, "macs_g": None, "exact_params": 4_582_436},
    "swin_tiny_cifar": {"params_m": None, "macs_g": None, "exact_params": 27_562_126},
    "twins_small_cifar": {"params_m": None, "macs_g": None, "exact_params": None},
    "mixer_tiny_cifar": {"params_m": None, "macs_g": None, "exact_params": 4_769_636},
}

_FIRST = {
    "pit_tiny_cifar": "patch_embed.conv",
    "twins_small_cifar": "patch_embeds.0.proj",
    "mixer_tiny_cifar": "stem.proj",
}


def cifar_cfg(**changes: Any) -> dict[str, Any]:
    """Returns timm's default configuration of a model for CIFAR-100."""
    return {
        "num_classes": 100, "input_size": (3, 32, 32), "fixed_input_size": True, "pool_size": None, "crop_pct": 1.0,
        "interpolation": "bicubic", "mean": (0.5071, 0.4867, 0.4408), "std": (0.2675, 0.2565, 0.2761),
        "first_conv": "patch_embed.proj", "classifier": "head", **changes,
    }  # fmt: skip


default_cfgs = generate_default_cfgs(
    {
        name: cifar_cfg(
            first_conv=_FIRST.get(name, "patch_embed.proj"),
            classifier="head.fc" if name.startswith("swin") else "head",
            pool_size=(4, 4) if name.startswith("swin") else None,  # the others return tokens
        )
        for name in PAPER
    }
)


def _create(make: Callable[..., nn.Module], name: str, pretrained: bool, indices: Any, **settings: Any) -> Any:
    features = {"out_indices": settings.pop("out_indices", indices), "feature_cls": "getter"}
    return build_model_with_cfg(make, name, pretrained, feature_cfg=features, **settings)


def _with_reductions(make: Callable[..., nn.Module], first: int) -> Callable[..., nn.Module]:
    """Correct the reduction of each stage in `feature_info`: timm's PiT and Twins assume their default patch size."""

    def build(**settings: Any) -> nn.Module:
        model: Any = make(**settings)
        for i, stage in enumerate(model.feature_info):
            stage["reduction"] = first * 2**i
        return model

    return build


def small_vit_settings(**settings: Any) -> dict[str, Any]:
    """Returns the settings of ViT-Ti for small images, updated with `settings`; no class token with GAP.

    >>> small_vit_settings(global_pool="avg")["class_token"]
    False
    """
    class_token = settings.get("global_pool", "token") in ("token", "")
    base = {"patch_size": 2, "embed_dim": 192, "depth": 12, "num_heads": 3, "qkv_bias": False}
    return {**base, "class_token": class_token, **settings}


@register_model
def vit_tiny_cifar(pretrained: bool = False, **settings: Any) -> VisionTransformer:
    """ViT-Ti of HDVW: 256 tokens of 2×2 pixels, D = 192, 3 heads."""
    return _create(VisionTransformer, "vit_tiny_cifar", pretrained, 3, **small_vit_settings(**settings))


@register_model
def vit_small_cifar(pretrained: bool = False, **settings: Any) -> VisionTransformer:
    """ViT-S of HDVW: D = 384, 6 heads."""
    settings = small_vit_settings(**{"embed_dim": 384, "num_heads": 6, **settings})
    return _create(VisionTransformer, "vit_small_cifar", pretrained, 3, **settings)


@register_model
def pit_tiny_cifar(pretrained: bool = False, **settings: Any) -> PoolingVisionTransformer:
    """PiT-Ti of HDVW: patches of 2×2 at stride 1, D = 64, 128, 256."""
    base = {"patch_size": 2, "stride": 1, "base_dims": (32, 32, 32), "depth": (2, 6, 4), "heads": (2, 4, 8)}
    settings = {**base, "mlp_ratio": 4, **settings}
    make = _with_reductions(PoolingVisionTransformer, settings["stride"])
    pooling = settings.pop("global_pool", "token")
    if pooling not in ("token", ""):
        raise VitlabError(f"invalid global_pool={pooling!r}; PiT supports 'token' and ''")
    model: PoolingVisionTransformer = _create(make, "pit_tiny_cifar", pretrained, len(settings["depth"]), **settings)
    if not settings.get("features_only"):
        model.global_pool = pooling  # timm's constructor accepts 'token' only
    return model


@register_model
def swin_tiny_cifar(pretrained: bool = False, **settings: Any) -> SwinTransformer:
    """Swin-Ti of HDVW: a token per pixel, windows of 4×4."""
    base = {"patch_size": 1, "window_size": 4, "embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)}
    settings = {**base, "qkv_bias": False, "drop_path_rate": 0.0, **settings}
    return _create(SwinTransformer, "swin_tiny_cifar", pretrained, len(settings["depths"]), **settings)


@register_model
def twins_small_cifar(pretrained: bool = False, **settings: Any) -> Twins:
    """Twins-S: the widths and depths of Twins-SVT-S, a token per pixel and windows of 4×4 (our choice)."""
    base = {"embed_dims": (64, 128, 256, 512), "num_heads": (2, 4, 8, 16), "depths": (2, 2, 10, 4), "wss": (4, 4, 4, 4)}
    settings = {**base, "patch_size": 1, "mlp_ratios": (4, 4, 4, 4), "sr_ratios": (8, 4, 2, 1), **settings}
    make = _with_reductions(Twins, settings["patch_size"])
    return _create(make, "twins_small_cifar", pretrained, len(settings["depths"]), **settings)


@register_model
def mixer_tiny_cifar(pretrained: bool = False, **settings: Any) -> MlpMixer:
    """MLP-Mixer-Ti of HDVW's code: D = 256, 8 blocks, MLPs of 128 over the tokens and 1024 over the channels."""
    settings = {"patch_size": 2, "embed_dim": 256, "num_blocks": 8, "mlp_ratio": (0.5, 4.0), **settings}
    return _create(MlpMixer, "mixer_tiny_cifar", pretrained, 3, **settings)
