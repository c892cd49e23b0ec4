"""Tiny models of the families that vary the plain ViT: positions, class attention, several scales, convolutions."""

from __future__ import annotations

from cases import Case, timm_model

PLAIN = {"embed_dim": 24, "depth": 3, "num_heads": 3}

CASES = [
    Case(
        "beit",
        timm_model("beit_base_patch16_224", img_size=(32, 48), patch_size=8, **PLAIN),
        (32, 48),
    ),
    Case(
        "eva",
        timm_model("eva02_tiny_patch14_224", img_size=(32, 48), patch_size=8, **PLAIN),
        (32, 48),
    ),
    Case(
        "dinov3",
        timm_model("vit_small_patch16_dinov3", img_size=32, patch_size=8, **PLAIN),
        (32, 48),
    ),
    Case(
        "pit",
        timm_model(
            "pit_ti_distilled_224", img_size=(32, 48), patch_size=8, base_dims=(8, 8, 8), depth=(1, 2, 1), stride=4
        ),
        (32, 48),
    ),
    Case(  # averaged, because little of the patches reaches the class token of a redrawn model
        "cait",
        timm_model("cait_xxs24_224", img_size=(32, 48), patch_size=8, global_pool="avg", **PLAIN),
        (32, 48),
    ),
    Case(  # its positions want a square grid
        "convit",
        timm_model("convit_tiny", img_size=32, patch_size=8, embed_dim=8, depth=4, num_heads=4, local_up_to_layer=2),
    ),
    Case(  # many heads, because channel attention averages the channels of a head
        "xcit",
        timm_model("xcit_nano_12_p8_224", img_size=(32, 48), embed_dim=64, depth=3, num_heads=32, global_pool="avg"),
        (32, 48),
    ),
    Case(
        "tnt",
        timm_model(
            "tnt_s_patch16_224",
            img_size=(32, 48),
            embed_dim=24,
            inner_dim=8,
            depth=2,
            num_heads_inner=2,
            num_heads_outer=3,
        ),
        (32, 48),
    ),
    Case(
        "crossvit",
        timm_model(
            "crossvit_9_240",
            img_size=(32, 64),
            img_scale=(1.0, 0.5),
            patch_size=(8, 8),
            embed_dim=(16, 24),
            depth=((1, 2, 0), (1, 1, 0)),
            num_heads=(2, 3),
        ),
        (32, 64),
    ),
    Case(
        "visformer",
        timm_model(
            "visformer_tiny", img_size=(32, 64), init_channels=8, embed_dim=32, depth=(1, 2, 2), num_heads=2, group=4
        ),
        (32, 64),
    ),
    Case(  # wide, because nothing but its stem carries the image past the shrinking block; 5x7 tokens become 3x4
        "levit",
        timm_model(
            "levit_128s",
            img_size=(40, 56),
            stem_type="s8",
            embed_dim=(160, 192),
            key_dim=16,
            depth=(2, 1),
            num_heads=(4, 4),
        ),
        (40, 56),
    ),
    Case(
        "coat",
        timm_model(
            "coat_tiny",
            img_size=(32, 64),
            embed_dims=(16, 24, 24, 24),
            serial_depths=(1, 2, 1, 1),
            parallel_depth=2,
            num_heads=8,
        ),
        (32, 64),
    ),
]
