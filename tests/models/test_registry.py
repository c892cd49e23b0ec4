"""Every entry point of ours takes what timm's users expect, on the meta device; the sizes are the real ones."""

from __future__ import annotations

import importlib

import pytest
import timm
import torch
from torch import nn

from vitlab import zoo
from vitlab.core import plugins

NAMES = zoo.model_names("vitlab")
FILES = [module.rpartition(".")[2] for module in plugins.models()]
#: Built for one image size, so a new one is given to the constructor; all others are also fed other sizes.
ONE_SIZE = ("conv_vit_", "pit_", "swin_", "mixer_", "vit_tiny_cifar", "vit_small_cifar")

#: Refuses sizes that are no multiple of its patch, as timm's ViT does, unless asked to pad.
PATCHES = ("vit_small_depth8", "local_vit")


def native(name: str) -> int:
    return timm.get_pretrained_cfg(name).input_size[-1]


def on_meta(name: str, **settings: object) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name, **settings)


def images(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


def drop_rates(model: nn.Module) -> list[float]:
    return [m.drop_prob for m in model.modules() if type(m).__name__ == "DropPath" and m.drop_prob]


@pytest.mark.parametrize("file", FILES)
def test_importing_a_file_registers_the_models_that_it_says_sizes_of(file: str) -> None:
    module = importlib.import_module(f"vitlab.models.{file}")
    assert set(timm.list_models(module=file)) == set(module.PAPER)


@pytest.mark.parametrize("name", NAMES)
def test_settings_that_timm_users_expect(name: str) -> None:
    size = (native(name), 2 * native(name))
    model = on_meta(name, num_classes=7, in_chans=1, drop_path_rate=0.1, img_size=size)
    assert model(images(2, 1, *size)).shape == (2, 7)
    assert model.num_classes == 7 and model.get_classifier() is not None
    assert 0.05 < max(drop_rates(model)) < 0.1001
    model.reset_classifier(0)
    assert model(images(2, 1, *size)).shape == (2, model.num_features)


@pytest.mark.parametrize("name", NAMES)
def test_default_model_and_other_sizes(name: str) -> None:
    side = native(name)
    model = on_meta(name)
    assert model.num_classes == (100 if side == 32 else 1000)
    sizes = [(side, side)] if name.startswith(ONE_SIZE) else [(side, side), (side + 32, side), (side + 16, 2 * side)]
    for size in sizes:
        assert model(images(1, 3, *size)).shape == (1, model.num_classes)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(ONE_SIZE)])
def test_sizes_that_no_patch_divides(name: str) -> None:
    side = native(name)
    # a ViT of timm's pads such images only when it is told to
    model = on_meta(name, dynamic_img_pad=True) if name.startswith(PATCHES) else on_meta(name)
    assert model(images(1, 3, side + 13, 2 * side - 5)).shape == (1, model.num_classes)


@pytest.mark.parametrize("name", NAMES)
def test_feature_maps_are_as_they_say(name: str) -> None:
    plain = on_meta(name)
    if not getattr(plain, "feature_info", None):
        pytest.skip(f"{name} claims no feature maps")
    side = native(name)
    model = on_meta(name, features_only=True)
    maps = model(images(1, 3, side, side))
    assert [m.shape[1] for m in maps] == model.feature_info.channels()
    sides = [side // reduction for reduction in model.feature_info.reduction()]
    if name == "pit_tiny_cifar":
        sides[0] -= 1  # patches of 2 pixels at stride 1
    assert [tuple(m.shape[2:]) for m in maps] == [(side, side) for side in sides]


@pytest.mark.parametrize("name", NAMES)
def test_both_names_build_the_same_model(name: str) -> None:
    with torch.device("meta"):
        ours = zoo.load(f"vitlab/{name}")
    theirs = on_meta(name)
    shapes = ({key: value.shape for key, value in model.state_dict().items()} for model in (ours, theirs))
    assert type(ours) is type(theirs) and next(shapes) == next(shapes)
