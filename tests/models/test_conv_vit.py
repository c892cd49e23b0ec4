"""The ViT with convolutional attention: its receptive field, and k = 8 against timm's ViT."""

from __future__ import annotations

import pytest
import timm
import torch

from cases import redraw
from cases.model_promises import compiles_and_exports, images, parameters, round_trips, trains
from vitlab.core.errors import VitlabError
from vitlab.models.conv_vit import PAPER, ConvolutionalVisionTransformer

TINY = {"embed_dim": 12, "depth": 2, "num_heads": 2, "num_classes": 7}


def tiny(name: str = "conv_vit_tiny_k3", seed: int = 0, **settings: object) -> ConvolutionalVisionTransformer:
    return redraw(timm.create_model(name, **{**TINY, **settings}), seed).eval()


def test_the_kernel_adds_no_parameter() -> None:
    with torch.device("meta"):
        counts = {parameters(timm.create_model(name)) for name in PAPER}
        plain = timm.create_model("vit_tiny_cifar", patch_size=4, global_pool="avg")
    assert counts == {parameters(plain)} == {5_372_836}


@pytest.mark.parametrize("name", PAPER)
def test_forward_backward_compile_export_round_trip(name: str) -> None:
    x = images(16, 32)
    trains(tiny(name, img_size=(16, 32)), x)
    compiles_and_exports(tiny(name, img_size=(16, 32)), x)
    round_trips(tiny(name, 0, img_size=(16, 32)), tiny(name, 1, img_size=(16, 32)), x)


@pytest.mark.parametrize(("name", "reach"), [("conv_vit_tiny_k3", 1), ("conv_vit_tiny_k5", 2), ("conv_vit_tiny_k8", 8)])
def test_the_receptive_field_of_one_block_is_its_kernel(name: str, reach: int) -> None:
    model = tiny(name, depth=1)
    x = images(32, 32)
    moved = x.clone()
    moved[:, :, 8:12, 16:20] += 1  # the token at row 2, column 4 of the 8×8 map
    moves = (model.forward_features(moved) - model.forward_features(x)).abs().amax((0, 2)).reshape(8, 8) > 1e-6
    rows, columns = torch.arange(8)[:, None], torch.arange(8)
    assert torch.equal(moves, ((rows - 2).abs() <= reach) & ((columns - 4).abs() <= reach))


def test_k8_equals_timms_vit() -> None:
    model = tiny("conv_vit_tiny_k8")
    plain = timm.create_model("vit_tiny_cifar", patch_size=4, global_pool="avg", **TINY).eval()
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(images(32, 32)), plain(images(32, 32)))


def test_other_sizes_need_another_model() -> None:
    with pytest.raises(VitlabError, match="img_size"):
        tiny(dynamic_img_size=True)
    with pytest.raises(VitlabError, match="img_size"):
        tiny().set_input_size((16, 16))
