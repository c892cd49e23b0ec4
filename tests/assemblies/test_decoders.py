"""UperNet and SegFormer: published sizes, and the neck against direct computation."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import vitlab
from vitlab.assemblies.neck import Neck
from vitlab.assemblies.segformer import segformer
from vitlab.assemblies.upernet import PyramidPooling, upernet
from vitlab.core.errors import VitlabError

VIT = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=4, num_heads=3)"


@pytest.mark.parametrize(("size", "millions"), [("tiny", 34.1), ("small", 53.5), ("base", 127.0)])
def test_parameters_of_upernet_are_those_of_cb_table_6(size: str, millions: float) -> None:
    with torch.device("meta"):
        backbone = vitlab.load(f"timm/vit_{size}_patch16_224")
        model = upernet(backbone, classes=150, size=(512, 512))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count / 1e6 == pytest.approx(millions, rel=0.01)


def test_parameters_of_the_segformer_decoder_by_hand() -> None:
    model = segformer(vitlab.load(VIT), classes=7, width=10)
    decoder = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("backbone."))
    projections, fuse, classifier = 4 * (24 * 10 + 10), 40 * 10 + 20, 10 * 7 + 7
    assert decoder == projections + fuse + classifier


def test_the_segformer_decoder_over_fan_is_that_of_tapadl() -> None:
    """Linear layers of 128, 256, 448 and 448 channels, fusion with BatchNorm, classifier; no layers before them."""
    with torch.device("meta"):
        model = segformer(vitlab.load("vitlab/fan_base_hybrid"), classes=19, width=768, size=(1024, 1024))
    decoder = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("backbone."))
    assert decoder == (128 + 256 + 448 + 448 + 4) * 768 + 4 * 768 * 768 + 2 * 768 + (768 + 1) * 19


def test_the_neck_makes_four_scales_of_a_plain_vit() -> None:
    maps = [torch.randn(1, 8, 6, 10) for _ in range(4)]
    neck = Neck((8,) * 4, (16,) * 4).eval()
    finest, fine, same, coarse = neck(maps)
    assert finest.shape == (1, 8, 24, 40) and fine.shape == (1, 8, 12, 20)
    assert torch.equal(same, maps[2])
    assert torch.equal(coarse, F.max_pool2d(maps[3], 2))


def test_the_neck_only_normalises_maps_that_have_their_scale() -> None:
    widths, strides = (4, 8, 16, 32), (4, 8, 16, 32)
    maps = [torch.randn(1, width, 64 // stride, 64 // stride) for width, stride in zip(widths, strides, strict=True)]
    for own, given in zip(Neck(widths, strides)(maps), maps, strict=True):
        expected = F.layer_norm(given.permute(0, 2, 3, 1), given.shape[1:2], eps=1e-6).permute(0, 3, 1, 2)
        torch.testing.assert_close(own, expected)


def test_pyramid_pooling_of_a_constant_map_is_constant() -> None:
    pooling = PyramidPooling(3, 2).eval()
    output = pooling.fuse[0](torch.cat([torch.ones(1, 3, 9, 7), torch.zeros(1, 8, 9, 7)], 1))
    assert output.shape == (1, 2, 9, 7)
    branch = pooling.branches[3](torch.ones(1, 3, 9, 7))
    assert branch.shape == (1, 2, 6, 6) and torch.equal(branch, branch[..., :1, :1].expand_as(branch))


@pytest.mark.parametrize("classes", [1, 0, "many"])
def test_a_segmenter_needs_two_classes(classes: object) -> None:
    with pytest.raises(VitlabError, match="expected 2 or more"):
        upernet(vitlab.load(VIT), classes=classes)  # type: ignore[arg-type]


def test_evaluation_has_no_auxiliary_output() -> None:
    model = upernet(vitlab.load(VIT), classes=3, width=8)
    images = torch.randn(2, 3, 32, 32)
    assert set(model(images)) == {"out", "aux"}
    assert model.eval()(images).shape == (2, 3, 32, 32)
    assert upernet(vitlab.load(VIT), classes=3, width=8, auxiliary_width=0)(images).shape == (2, 3, 32, 32)


# -- images of other sizes ---------------------------------------------------------------------------------------------


def test_whole_images_of_another_size_are_resized() -> None:
    model = upernet(vitlab.load(VIT), classes=3, width=8).eval()
    images = torch.randn(1, 3, 40, 56)
    small = F.interpolate(images, (32, 32), mode="bilinear", align_corners=False)
    expected = F.interpolate(model(small), (40, 56), mode="bilinear", align_corners=False)
    torch.testing.assert_close(model(images), expected)


def test_sliding_windows_average_the_logits_of_all_windows() -> None:
    """Against a loop over the pixels: the mean over the windows that contain a pixel."""
    model = upernet(vitlab.load(VIT), classes=3, width=8, stride=(16, 20)).eval()
    images = torch.randn(1, 3, 48, 60)
    starts = [(top, left) for top in (0, 16) for left in (0, 20, 28)]
    windows = {(top, left): model(images[..., top : top + 32, left : left + 32])[0] for top, left in starts}
    found = model(images)[0]
    for y, x in [(0, 0), (20, 25), (47, 59), (31, 30), (16, 20)]:
        own = [
            logits[:, y - top, x - left]
            for (top, left), logits in windows.items()
            if top <= y < top + 32 and left <= x < left + 32
        ]
        torch.testing.assert_close(found[:, y, x], torch.stack(own).mean(0))


def test_images_smaller_than_a_window_are_enlarged() -> None:
    model = upernet(vitlab.load(VIT), classes=3, width=8, stride=(16, 16)).eval()
    assert model(torch.randn(1, 3, 20, 40)).shape == (1, 3, 20, 40)


@pytest.mark.parametrize("stride", [(33, 16), (16, 33)])
def test_windows_that_would_not_cover_an_image_are_an_error(stride: tuple[int, int]) -> None:
    """The pixels between two windows had the logits 0/0."""
    with pytest.raises(VitlabError, match=r"invalid stride=.* windows of 32x32 pixels"):
        upernet(vitlab.load(VIT), classes=3, width=8, stride=stride)
    assert (
        upernet(vitlab.load(VIT), classes=3, width=8, stride=(32, 32))
        .eval()(torch.randn(1, 3, 65, 70))
        .isfinite()
        .all()
    )
