"""Every entry point supports timm's interface, on the meta device; the sizes are the real ones."""

from __future__ import annotations

import importlib
from functools import cache

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


@cache
def plain(name: str) -> nn.Module:
    return on_meta(name)


def images(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


def drop_rates(model: nn.Module) -> list[float]:
    return [m.drop_prob for m in model.modules() if type(m).__name__ == "DropPath" and m.drop_prob]


@pytest.mark.parametrize("file", FILES)
def test_importing_a_file_registers_its_models(file: str) -> None:
    module = importlib.import_module(f"vitlab.models.{file}")
    assert set(timm.list_models(module=file)) == set(module.PAPER)


@pytest.mark.parametrize("name", NAMES)
def test_settings_that_timm_users_expect(name: str) -> None:
    side = native(name)
    size = (side, side // 2 if name == "conv_vit_tiny_k8" else 2 * side)  # k = 8 covers no larger map
    model = on_meta(name, num_classes=7, in_chans=1, drop_path_rate=0.1, img_size=size)
    assert model(images(2, 1, *size)).shape == (2, 7)
    assert model.num_classes == 7 and isinstance(model.get_classifier(), nn.Linear)
    assert 0.05 < max(drop_rates(model)) < 0.1001


@pytest.mark.parametrize("name", NAMES)
def test_default_classes(name: str) -> None:
    side = native(name)
    classes = 100 if side == 32 else 1000
    assert plain(name)(images(1, 3, side, side)).shape == (1, classes)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(ONE_SIZE)])
def test_images_of_another_size(name: str) -> None:
    side = native(name)
    # a ViT of timm's pads images that its patches do not tile only if a setting says so
    model = on_meta(name, dynamic_img_pad=True) if name.startswith(PATCHES) else plain(name)
    assert model(images(1, 3, side + 13, 2 * side - 5)).shape == (1, model.num_classes)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(PATCHES)])
def test_images_of_another_number_of_patches(name: str) -> None:
    model = plain(name)
    assert model(images(1, 3, native(name) - 32, native(name) + 16)).shape == (1, model.num_classes)


@pytest.mark.parametrize("name", NAMES)
def test_feature_maps_have_their_declared_sizes(name: str) -> None:
    side = native(name)
    model = on_meta(name, features_only=True)
    maps = model(images(1, 3, side, side))
    assert [m.shape[1] for m in maps] == model.feature_info.channels()
    sides = [side // reduction for reduction in model.feature_info.reduction()]
    if name == "pit_tiny_cifar":
        sides[0] -= 1  # patches of 2 pixels at stride 1
    assert [tuple(m.shape[2:]) for m in maps] == [(side, side) for side in sides]


@pytest.mark.parametrize("file", FILES)
def test_both_names_build_the_same_model(file: str) -> None:
    name = timm.list_models(module=file)[0]
    with torch.device("meta"):
        ours = zoo.load(f"vitlab/{name}")
    shapes = ({key: value.shape for key, value in model.state_dict().items()} for model in (ours, plain(name)))
    assert type(ours) is type(plain(name)) and next(shapes) == next(shapes)
