"""Tiny models of our PVT, LocalViT, T2T-ViT, convolutional ViT and extra-block ViT, and of those for small images."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from torch import nn

from cases import Case, timm_model


def own_model(file: str, name: str, **settings: object) -> Callable[[], nn.Module]:
    """A builder of one of our models, registered with timm when it is called."""

    def build() -> nn.Module:
        importlib.import_module(f"vitlab.models.{file}")
        return timm_model(name, **settings)()

    return build


VIT = {"embed_dim": 24, "depth": 3, "num_heads": 3}
# The norm comes before the average: after it, LayerNorm would undo what the counting part does to all tokens alike.
GAP = {**VIT, "fc_norm": False}
TWO = {"depths": (1, 2), "num_heads": (1, 2)}
PVT = {"embed_dims": (8, 16), "mlp_ratios": (2, 2), "sr_ratios": (2, 1), **TWO}
TWINS = {"embed_dims": (8, 16), "mlp_ratios": (2, 2), "sr_ratios": (2, 1), "wss": (2, 2), "depths": (2, 2)}
PIT = {"base_dims": (8, 8), "depth": (1, 2), "heads": (1, 2), "mlp_ratio": 2}

CASES = [
    Case("pvt", own_model("pvt", "pvt_tiny", img_size=32, **PVT), (32, 48)),
    Case("local_vit", own_model("local_vit", "local_vit_tiny", img_size=32, patch_size=8, **VIT), (32, 48)),
    Case("t2t_vit", own_model("t2t_vit", "t2t_vit_t_24", img_size=64, token_dim=8, **VIT), (48, 64)),
    Case("conv_vit", own_model("conv_vit", "conv_vit_tiny_k3", img_size=(16, 24), **GAP), (16, 24)),
    Case("conv_vit", own_model("conv_vit", "conv_vit_tiny_k8", img_size=(16, 32), **GAP), (16, 32)),
    *(
        Case("extra_block_vit", own_model("extra_block_vit", name, img_size=32, patch_size=8, **VIT), (32, 48))
        for name in ("vit_small_depth8", "vit_small_depth8_extra_attention", "vit_small_depth8_extra_mlp")
    ),
    Case("vit", own_model("small_images", "vit_tiny_cifar", patch_size=8, global_pool="avg", **GAP)),
    Case("pit", own_model("small_images", "pit_tiny_cifar", img_size=(12, 8), **PIT), (12, 8)),
    Case("swin", own_model("small_images", "swin_tiny_cifar", img_size=(16, 8), embed_dim=8, **TWO), (16, 8)),
    Case("twins_svt", own_model("small_images", "twins_small_cifar", num_heads=(1, 2), **TWINS), (8, 12)),
    Case("mixer", own_model("small_images", "mixer_tiny_cifar", patch_size=8, embed_dim=16, num_blocks=2)),
]
