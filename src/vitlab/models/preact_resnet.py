"""Pre-activation ResNet-18/34/50/101, for ImageNet and for small images such as CIFAR's.

Source: He et al. 2016, "Identity Mappings in Deep Residual Networks", in the form of "How Do Vision Transformers Work?"
(HDVW): the 3×3 convolution has the stride, a projection is a 1×1 convolution of the normalised input, the stem has
neither norm nor activation, and the classifier is BN-ReLU-GAP-Linear. The blocks are those of timm, which are the same.

The two stems: 7×7 with stride 2 and a max pool (ImageNet), 3×3 with stride 1 (CIFAR, `small_images`).

Parameters: preact_resnet50 25,549,352 and preact_resnet50_cifar 23,697,572 (100 classes), both exact. The stems differ
by 64·3·(49 − 9) = 7,680 and the classifiers by 900·2,049 = 1,844,100. HDVW prints no count for any of these; timm's
`resnetv2_50` has the same number. The initialisation is PyTorch's default, as in HDVW's code.

Shape legend: B batch, C channels, h w grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.layers import BatchNormAct2d, create_conv2d
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.resnetv2 import DownsampleConv, PreActBasic, PreActBottleneck
from torch import nn

from vitlab.models._staged_network import StagedNetwork

PAPER = {
    "preact_resnet18": {"params_m": None, "macs_g": None, "exact_params": 11_687_720},
    "preact_resnet34": {"params_m": None, "macs_g": None, "exact_params": 21_795_880},
    "preact_resnet50": {"params_m": None, "macs_g": None, "exact_params": 25_549_352},
    "preact_resnet101": {"params_m": None, "macs_g": None, "exact_params": 44_541_480},
    "preact_resnet18_cifar": {"params_m": None, "macs_g": None, "exact_params": 11_218_340},
    "preact_resnet34_cifar": {"params_m": None, "macs_g": None, "exact_params": 21_326_500},
    "preact_resnet50_cifar": {"params_m": None, "macs_g": None, "exact_params": 23_697_572},
    "preact_resnet101_cifar": {"params_m": None, "macs_g": None, "exact_params": 42_689_700},
}

CIFAR_MEAN, CIFAR_STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


class PreActResNet(StagedNetwork):
    """Pre-activation ResNet: x + conv(act(norm(... act(norm(x))))).

    Args:
        depths: blocks per stage.
        bottleneck: 1×1, 3×3, 1×1 convolutions with an expansion of 4 (50, 101), or two 3×3 convolutions (18, 34).
        width: channels of the stem, and of the 3×3 convolutions of the first stage; doubled in each stage.
        small_images: the CIFAR stem.
        drop_path_rate: stochastic depth of the last block, rising linearly from 0 at the first.
        settings: `num_classes`, `global_pool`, `drop_rate`, `img_size` of `StagedNetwork`.
    """

    def __init__(
        self,
        depths: Sequence[int] = (3, 4, 6, 3),
        bottleneck: bool = True,
        width: int = 64,
        small_images: bool = False,
        in_chans: int = 3,
        drop_path_rate: float = 0.0,
        **settings: Any,
    ) -> None:
        channels = stage_channels(depths, width, bottleneck)
        stages = [
            [
                preact_block(channels[stage], channels[stage + 1], stage, index, bottleneck, rate)
                for index, rate in enumerate(rates)
            ]
            for stage, rates in enumerate(drop_path_rates(drop_path_rate, depths))
        ]
        super().__init__(
            preact_stem(in_chans, width, small_images), stages, BatchNormAct2d(channels[-1]), channels, **settings
        )


def stage_channels(depths: Sequence[int], width: int, bottleneck: bool) -> tuple[int, ...]:
    """Channels of the stem and of every stage.

    >>> stage_channels((3, 4, 6, 3), 64, bottleneck=True)
    (64, 256, 512, 1024, 2048)
    """
    return (width, *(width * 2**stage * (4 if bottleneck else 1) for stage in range(len(depths))))


def drop_path_rates(last: float, depths: Sequence[int]) -> list[list[float]]:
    """The stochastic depth rate of every block of every stage, linear from 0 at the first block to `last`.

    >>> drop_path_rates(0.2, (1, 2))
    [[0.0], [0.1, 0.2]]
    """
    between = max(sum(depths) - 1, 1)
    first = [sum(depths[:stage]) for stage in range(len(depths))]
    return [[last * (start + index) / between for index in range(n)] for start, n in zip(first, depths, strict=True)]


def preact_stem(in_chans: int, width: int, small_images: bool) -> nn.Sequential:
    """A convolution, and for large images a max pool. The first block starts with norm and activation."""
    stem = nn.Sequential()
    stem.add_module("conv", first_convolution(in_chans, width, small_images))
    if not small_images:
        stem.add_module("pool", nn.MaxPool2d(3, stride=2, padding=1))
    return stem


def first_convolution(in_chans: int, width: int, small_images: bool) -> nn.Conv2d:
    """Returns a 3×3 convolution with stride 1 for small images, else 7×7 with stride 2."""
    if small_images:
        return nn.Conv2d(in_chans, width, 3, padding=1, bias=False)
    return nn.Conv2d(in_chans, width, 7, stride=2, padding=3, bias=False)


def preact_block(
    in_channels: int, out_channels: int, stage: int, index: int, bottleneck: bool, drop_path: float
) -> nn.Module:
    """Returns the block of that index: the first of a stage has a projection, and halves the map after stage 0."""
    block = PreActBottleneck if bottleneck else PreActBasic
    return block(
        in_channels if index == 0 else out_channels,
        out_channels,
        bottle_ratio=0.25 if bottleneck else 1.0,
        stride=2 if index == 0 and stage > 0 else 1,
        conv_layer=create_conv2d,
        norm_layer=BatchNormAct2d,
        proj_layer=DownsampleConv if index == 0 else None,
        drop_path_rate=drop_path,
    )


def image_settings(small_images: bool) -> dict[str, Any]:
    """Returns timm's default configuration of an untrained network for CIFAR-100 or ImageNet."""
    size, classes = (32, 100) if small_images else (224, 1000)
    return {
        "num_classes": classes,
        "input_size": (3, size, size),
        "pool_size": (size // (8 if small_images else 32),) * 2,
        "crop_pct": 1.0 if small_images else 0.875,
        "interpolation": "bicubic",
        "mean": CIFAR_MEAN if small_images else IMAGENET_DEFAULT_MEAN,
        "std": CIFAR_STD if small_images else IMAGENET_DEFAULT_STD,
        "first_conv": "stem.conv",
        "classifier": "head.fc",
        "license": "apache-2.0",
    }


default_cfgs = generate_default_cfgs({name: image_settings(name.endswith("_cifar")) for name in PAPER})


def _build(name: str, pretrained: bool, defaults: dict[str, Any], settings: dict[str, Any]) -> PreActResNet:
    """Returns the network of that name; `settings` of the caller replace its defaults."""
    settings = {"small_images": name.endswith("_cifar"), **defaults, **settings}
    return build_model_with_cfg(PreActResNet, name, pretrained, feature_cfg={"flatten_sequential": True}, **settings)


@register_model
def preact_resnet18(pretrained: bool = False, **settings: Any) -> PreActResNet:
    """Pre-activation ResNet-18 for ImageNet."""
    return _build("preact_resnet18", pretrained, {"depths": (2, 2, 2, 2), "bottleneck": False}, settings)


@register_model
def preact_resnet34(pretrained: bool = False, **settings: Any) -> PreActResNet:
    """Pre-activation ResNet-34 for ImageNet."""
    return _build("preact_resnet34", pretrained, {"depths": (3, 4, 6, 3), "bottleneck": False}, settings)


@register_model
def preact_resnet50(pretrained: bool = False, **settings: Any) -> PreActResNet:
    """Pre-activation ResNet-50 for ImageNet."""
    return _build("preact_resnet50", pretrained, {"depths": (3, 4, 6, 3)}, settings)


@register_model
def preact_resnet101(pretrained: bool = False, **settings: Any) -> PreActResNet:
    """Pre-activation ResNet-101 for ImageNet."""
    return _build("preact_resnet101", pretrained, {"depths": (3, 4, 23, 3)}, settings)


@register_model
def preact_resnet18_cifar(pretrained: bool = False, **settings: Any) -> PreActResNet:
    """Pre-activation ResNet-18 for 32×32 images."""
    return _build("preact_resnet18_cifar", pretrained, {"depths": (2, 2, 2, 2), "bottleneck": False}, settings)


@register_model
def preact_resnet34_cifar(pretrained: bool = False, **settings: Any) -> PreActResNet:
    """Pre-activation ResNet-34 for 32×32 images."""
    return _build("preact_resnet34_cifar", pretrained, {"depths": (3, 4, 6, 3), "bottleneck": False}, settings)


@register_model
def preact_resnet50_cifar(pretrained: bool = False, **settings: Any) -> PreActResNet:
    """Pre-activation ResNet-50 for 32×32 images, the baseline of HDVW Fig. 12a."""
    return _build("preact_resnet50_cifar", pretrained, {"depths": (3, 4, 6, 3)}, settings)


@register_model
def preact_resnet101_cifar(pretrained: bool = False, **settings: Any) -> PreActResNet:
    """Pre-activation ResNet-101 for 32×32 images."""
    return _build("preact_resnet101_cifar", pretrained, {"depths": (3, 4, 23, 3)}, settings)
