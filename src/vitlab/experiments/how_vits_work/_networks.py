"""The networks of HDVW's experiments: recipes, tiny networks that replace them, and their speed.

Images per second: HDVW's numbers (App. A, App. E) times 10, the ratio between 4,028 images per second of its
pre-activation ResNet-50 on one H200 (float32, eager, batch 96: `docs/results/speed.md`) and HDVW's 394 (473 / 1.2).
Rates of networks that HDVW does not time, and of ImageNet (2,500), are guesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vitlab.core.experiment import Scale
from vitlab.core.expressions import call_text

__all__ = [
    "NETWORKS",
    "RELEASED",
    "RELEASED_CIFAR100",
    "Network",
    "alternet",
    "arms",
    "imagenet",
    "network",
    "smoothed",
    "vit",
]


@dataclass(frozen=True)
class Network:
    """A network and its training.

    Args:
        recipe: a recipe expression.
        tiny: the network that replaces it at `smoke`.
        rate: images per second of its training on one H200.
        changes: settings of the recipe to replace, at `small` and `full`.
        images: training images.
        epochs: epochs of the recipe where they differ from those of the scale.
        needs: files below the data root.
        gigabytes: size of its data.
    """

    recipe: str
    tiny: str
    rate: float
    changes: tuple[str, ...] = ()
    images: int = 50_000
    epochs: Mapping[Scale, int] = field(default_factory=dict)
    needs: tuple[str, ...] = ("cifar-100-binary",)
    gigabytes: float = 0.2


#: Name of `how_vits_work_cifar` -> kind of the network and images per second.
_CIFAR: dict[str, tuple[str, float]] = {
    "resnet18": ("cnn", 9000),
    "resnet50": ("cnn", 3200),
    "resnet101": ("cnn", 1900),
    "resnext50": ("cnn", 2400),
    "preact_resnet50": ("cnn", 4000),
    "vit_tiny": ("vit", 4340),
    "vit_small": ("vit", 2200),
    "pit_tiny": ("pit", 3640),
    "swin_tiny": ("swin", 4690),
    "twins_small": ("swin", 3000),
    "mixer_tiny": ("vit", 6000),
    "alternet50": ("alternet", 3100),
    "conv_vit_k3": ("conv", 6000),
    "conv_vit_k5": ("conv", 5000),
    "conv_vit_k8": ("vit", 8000),
}


def network(name: str, *, data: str = "cifar100", fraction: float = 1.0, augmentation: str = "strong") -> Network:
    """A network of `how_vits_work_cifar` with its settings."""
    settings: dict[str, Any] = {"network": name}
    settings |= {"data": data} if data != "cifar100" else {}
    settings |= {"augmentation": augmentation} if augmentation != "strong" else {}
    settings |= {"fraction": fraction} if fraction != 1 else {}
    tiny, rate = _CIFAR[name]
    needs = ("cifar-100-binary",) if data == "cifar100" else ("cifar-10-batches-bin",)
    return Network(call_text("how_vits_work_cifar", settings), tiny, rate, images=round(50_000 * fraction), needs=needs)


#: The networks on CIFAR-100 by name.
NETWORKS = {name: network(name) for name in _CIFAR}


def arms(names: Iterable[str]) -> dict[str, Network]:
    """Networks on CIFAR-100 by name, as arms of the same names."""
    return {name: NETWORKS[name] for name in names}


def vit(rate: float = 4340, changes: tuple[str, ...] = (), **settings: int | str) -> Network:
    """A variant of ViT-Ti, `how_vits_work_vit` with these settings."""
    return Network(call_text("how_vits_work_vit", settings), "vit", rate, changes)


def alternet(plan: tuple[int, ...], base: str = "preact") -> Network:
    """AlterNet-50 with these numbers of MSAs in its stages."""
    text = f"plan={plan}" if base == "preact" else f"plan={plan}, base={base!r}"
    return Network(f"how_vits_work_alternet({text})", "alternet" if any(plan) else "cnn", 3100)


def smoothed(name: str, stages: str = "all") -> Network:
    """A CNN with box blurs after its stages."""
    text = f"network={name!r}" + (f", stages={stages!r}" if stages != "all" else "")
    return Network(f"how_vits_work_smoothing({text})", "cnn", _CIFAR[name][1])


def imagenet(name: str) -> Network:
    """A network of `how_vits_work_imagenet`."""
    tiny = _CIFAR[name][0]
    recipe = f"how_vits_work_imagenet(network={name!r})"
    return Network(recipe, tiny, 2500, images=1_281_167, needs=("imagenet",), gigabytes=150.0)


#: Published weights of ImageNet-1K. ResNets are those of timm's strong augmentation, as in HDVW's training.
RELEASED = {
    "resnet50": "timm/resnet50.a1_in1k(pretrained=True)",
    "resnext50": "timm/resnext50_32x4d.a1h_in1k(pretrained=True)",
    "vit_tiny": "timm/deit_tiny_patch16_224.fb_in1k(pretrained=True)",
    "pit_tiny": "timm/pit_ti_224.in1k(pretrained=True)",
    "swin_tiny": "timm/swin_tiny_patch4_window7_224.ms_in1k(pretrained=True)",
    "convit_tiny": "timm/convit_tiny.fb_in1k(pretrained=True)",
    "levit_128s": "timm/levit_128s.fb_dist_in1k(pretrained=True)",
    "coat_lite_tiny": "timm/coat_lite_tiny.in1k(pretrained=True)",
    "mixer_b16": "timm/mixer_b16_224.goog_in21k_ft_in1k(pretrained=True)",
}

#: HDVW's own weights of CIFAR-100, in `weights/` below the data root under the names of the release v0.1 of
#: xxxnell/how-do-vits-work-storage. It has these four networks: none of AlterNet, pre-activation ResNet, other sizes,
#: fractions of the data or epochs of training was published.
RELEASED_CIFAR100 = {
    arm: f"vitlab/{model}weights='{{root}}/weights/{file}.pth.tar')"
    for arm, model, file in (
        (
            "resnet50",
            "alternet50_cifar(depths=(3, 4, 6, 3), plan=(0, 0, 0, 0), base='resnet', ",
            "resnet_50_cifar100_691cc9a9e4",
        ),
        ("vit_tiny", "vit_tiny_cifar(", "vit_ti_cifar100_9857b21357"),
        ("pit_tiny", "pit_tiny_cifar(", "pit_ti_cifar100_0645889efb"),
        ("swin_tiny", "swin_tiny_cifar(", "swin_ti_cifar100_ec2894492b"),
    )
}
