"""Models for 32×32 images: the exact count, the settings of HDVW, and what the entry points add to timm's classes."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

from cases import redraw
from cases.model_promises import compiles_and_exports, images, parameters, round_trips, trains
from vitlab.models.small_images import PAPER

TINY = {
    "vit_tiny_cifar": {"patch_size": 4, "embed_dim": 12, "depth": 2, "num_heads": 2},
    "vit_small_cifar": {"patch_size": 4, "embed_dim": 12, "depth": 2, "num_heads": 2, "global_pool": "avg"},
    "pit_tiny_cifar": {"base_dims": (6, 6), "depth": (1, 1), "heads": (1, 2), "mlp_ratio": 2},
    "swin_tiny_cifar": {"embed_dim": 8, "depths": (2, 2), "num_heads": (1, 2), "window_size": 2},
    "twins_small_cifar": {
        "embed_dims": (8, 16), "num_heads": (1, 2), "mlp_ratios": (2, 2), "depths": (2, 2), "wss": (2, 2),
        "sr_ratios": (2, 1),
    },
    "mixer_tiny_cifar": {"embed_dim": 12, "num_blocks": 2},
}  # fmt: skip


def tiny(name: str, size: tuple[int, int], seed: int = 0, **settings: object) -> nn.Module:
    settings = {"num_classes": 7, "img_size": size, **TINY[name], **settings}
    return redraw(timm.create_model(name, **settings), seed).eval()


def on_meta(name: str, **settings: object) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name, **settings)


#: Counts of the published classes, 100 classes.
PUBLISHED = {
    "vit_tiny_cifar": 5_403_172,
    "vit_small_cifar": 21_423_076,
    "pit_tiny_cifar": 4_582_436,
    "swin_tiny_cifar": 27_562_126,
    "mixer_tiny_cifar": 4_769_636,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_exact_parameters(name: str) -> None:
    assert parameters(on_meta(name)) == PAPER[name]["exact_params"] == PUBLISHED[name]


def test_mixer_of_the_released_code() -> None:
    """Depth 8, width 256, token MLP 128, channel MLP 1024."""
    blocks = on_meta("mixer_tiny_cifar").blocks
    assert len(blocks) == 8
    for block in blocks:
        assert block.mlp_tokens.fc1.weight.shape == (128, 256) and block.mlp_channels.fc1.weight.shape == (1024, 256)


@pytest.mark.parametrize("patch", [2, 4, 8])
@pytest.mark.parametrize("pool", ["token", "avg"])
def test_parameters_of_a_vit_in_closed_form(patch: int, pool: str) -> None:
    d, depth, prefix = 96, 5, int(pool == "token")
    settings = {"embed_dim": d, "depth": depth, "num_heads": 4, "patch_size": patch, "global_pool": pool}
    tokens = (32 // patch) ** 2 + prefix
    block = 4 * d * d + d + 8 * d * d + 5 * d + 4 * d
    expected = (3 * patch**2 + 1) * d + (tokens + prefix) * d + depth * block + 2 * d + (d + 1) * 100
    assert parameters(on_meta("vit_tiny_cifar", **settings)) == expected


@pytest.mark.parametrize("name", PAPER)
def test_forward_backward_compile_export_round_trip(name: str) -> None:
    size = (16, 8)
    trains(tiny(name, size), images(*size))
    compiles_and_exports(tiny(name, size), images(*size))
    round_trips(tiny(name, size, 0), tiny(name, size, 1), images(*size))


@pytest.mark.parametrize("name", PAPER)
def test_settings(name: str) -> None:
    assert timm.create_model(name, **TINY[name])(images(32, 32)).shape == (2, 100)
    model = tiny(name, (16, 16), in_chans=1, drop_path_rate=0.3)
    rates = [getattr(module, "drop_prob", 0.0) for module in model.modules()]
    assert max(rates) == pytest.approx(0.3)
    model.reset_classifier(3)
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 3)


@pytest.mark.parametrize("name", ["pit_tiny_cifar", "swin_tiny_cifar", "twins_small_cifar", "vit_tiny_cifar"])
def test_feature_maps_have_their_declared_sizes(name: str) -> None:
    model = timm.create_model(name, features_only=True, out_indices=[0, 1], **{"img_size": (16, 16), **TINY[name]})
    maps = model(images(16, 16))
    for x, channels, reduction in zip(maps, model.feature_info.channels(), model.feature_info.reduction(), strict=True):
        assert x.shape[1] == channels
        assert abs(x.shape[2] - 16 / reduction) <= 1  # PiT's patches of 2 at stride 1 leave one row less


def test_the_grids_of_the_paper() -> None:
    pit, swin = on_meta("pit_tiny_cifar"), on_meta("swin_tiny_cifar")
    assert pit.patch_embed.grid_size == (31, 31) and [stage.blocks[0].attn.num_heads for stage in pit.transformers] == [
        2,
        4,
        8,
    ]
    assert swin.patch_embed.grid_size == (32, 32)
    assert {block.window_size for stage in swin.layers for block in stage.blocks} == {(4, 4)}
    assert all(block.attn.qkv.bias is None for stage in swin.layers for block in stage.blocks)


def test_gap_reads_the_mean_of_all_tokens_and_has_no_class_token() -> None:
    model = tiny("vit_tiny_cifar", (16, 16), global_pool="avg")
    assert model.cls_token is None and model.num_prefix_tokens == 0
    tokens = model.forward_features(images(16, 16))
    torch.testing.assert_close(model(images(16, 16)), model.head(model.fc_norm(tokens.mean(1))))
