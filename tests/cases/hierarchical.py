"""Tiny hierarchical models of timm: at least two stages, shifted windows where there are any, mostly non-square."""

from __future__ import annotations

from torch import nn

from cases import Case, timm_model


def nest() -> nn.Module:
    """timm's own builders of NesT and MViTv2 fix depths and widths."""
    from timm.models.nest import Nest

    return Nest(img_size=32, num_classes=7, num_levels=2, embed_dims=(16, 24), num_heads=(2, 3), depths=(1, 2))


def mvitv2() -> nn.Module:
    from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg

    strides = {"stride_q": ((1, 1), (2, 2)), "stride_kv": ((2, 2), (1, 1))}
    return MultiScaleVit(
        MultiScaleVitCfg(depths=(1, 2), embed_dim=(16, 32), num_heads=(2, 4), use_cls_token=True, **strides),
        img_size=(32, 32),
        num_classes=7,
    )


SWIN = {"img_size": (32, 64), "patch_size": 4, "window_size": 4, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4)}
PVT = {"depths": (1, 2), "embed_dims": (16, 24), "num_heads": (2, 3), "sr_ratios": (4, 1), "mlp_ratios": (2, 2)}
TWINS = dict(PVT, img_size=(64, 32), depths=(2, 2))
HIERA = {
    "embed_dim": 16,
    "stages": (1, 2, 2),
    "q_pool": 2,
    "mask_unit_size": (4, 4),
    "mask_unit_attn": (True, True, False),
}
MAXXVIT = {
    "embed_dim": (16, 32),
    "depths": (1, 2),
    "stem_width": (8, 16),
    "transformer_dim_head": 8,
    "transformer_partition_ratio": 16,
}

CASES = [
    Case("swin", timm_model("swin_tiny_patch4_window7_224", **SWIN), (32, 64)),
    Case("swin_v2", timm_model("swinv2_tiny_window8_256", **SWIN), (32, 64)),
    Case("pvt_v2", timm_model("pvt_v2_b0", **PVT), (32, 64)),
    Case("twins_pcpvt", timm_model("twins_pcpvt_small", **TWINS), (64, 32)),
    Case("twins_svt", timm_model("twins_svt_small", **TWINS, wss=(4, 4)), (64, 32)),
    Case("maxvit", timm_model("maxvit_tiny_rw_224", img_size=(64, 32), **MAXXVIT, block_type=("M", "M")), (64, 32)),
    Case("coatnet", timm_model("coatnet_0_rw_224", img_size=(64, 32), **MAXXVIT, block_type=("C", "T")), (64, 32)),
    Case("nest", nest),
    Case("mvitv2", mvitv2, (32, 16)),
    Case("hiera", timm_model("hiera_tiny_224", img_size=(64, 32), **HIERA), (64, 32)),
]
