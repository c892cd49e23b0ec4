"""The training runs of "How Do Vision Transformers Work?" (HDVW).

One recipe for CNNs and ViTs (App. A and the released settings): AdamW at 1.25e-4, weight decay 0.05, batch 96 on
CIFAR and 128 on ImageNet, 5 warm-up epochs from 0 and then 300 of a cosine to 0, 305 in all. Mixup has α = 1 and CutMix
α = 0.8, the reverse of DeiT. The paper says that random erasing is used; the released settings use it on ImageNet only.

Our choices: the cosine schedule is updated every step instead of every epoch; weight decay applies to the same weights
as in DeiT; snapshots are taken after warm-up, after 10 epochs, after each tenth of the run, and at its end. The initial
weights are saved too, as in the released code, for `trajectory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from vitlab.core.bounds import Choices, Length, PositiveShare, Range
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import PartCall
from vitlab.core.recipe import Augment, Objective, Optimizer, Recipe
from vitlab.recipes._parts import Epochs, Heads, choose, model

__all__ = [
    "how_vits_work_alternet",
    "how_vits_work_cifar",
    "how_vits_work_imagenet",
    "how_vits_work_smoothing",
    "how_vits_work_vit",
]

WARMUP = 5

_NONE = (0, 0, 0, 0)

#: Name -> model and settings. The ResNets and ResNeXt are post-activation networks: our interpretation, because the
#: paper names pre-activation explicitly. An AlterNet without attention is such a network with a stem for CIFAR.
CIFAR_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet18": ("alternet18_cifar", {"depths": (2, 2, 2, 2), "plan": _NONE, "base": "resnet"}),
    "resnet50": ("alternet50_cifar", {"depths": (3, 4, 6, 3), "plan": _NONE, "base": "resnet"}),
    "resnet101": ("alternet101_cifar", {"depths": (3, 4, 23, 3), "plan": _NONE, "base": "resnet"}),
    "resnext50": ("alternet50_cifar", {"depths": (3, 4, 6, 3), "plan": _NONE, "base": "resnext"}),
    "preact_resnet50": ("preact_resnet50_cifar", {}),
    "vit_tiny": ("vit_tiny_cifar", {}),
    "vit_small": ("vit_small_cifar", {}),
    "pit_tiny": ("pit_tiny_cifar", {}),
    "swin_tiny": ("swin_tiny_cifar", {}),
    "twins_small": ("twins_small_cifar", {}),
    "mixer_tiny": ("mixer_tiny_cifar", {}),
    "alternet50": ("alternet50_cifar", {}),
    "conv_vit_k3": ("conv_vit_tiny_k3", {}),
    "conv_vit_k5": ("conv_vit_tiny_k5", {}),
    "conv_vit_k8": ("conv_vit_tiny_k8", {}),
}

IMAGENET_MODELS: dict[str, tuple[str, str]] = {
    "resnet50": ("timm", "resnet50"),
    "preact_resnet50": ("vitlab", "preact_resnet50"),
    "vit_tiny": ("timm", "vit_tiny_patch16_224"),
    "alternet50": ("vitlab", "alternet50"),
}

#: The CNNs for spatial smoothing.
SMOOTHED = {name: CIFAR_MODELS[name] for name in ("resnet18", "resnet50", "resnet101", "resnext50", "preact_resnet50")}

CLASSES = {"cifar10": 10, "cifar100": 100}

POOLS = {"token": "", "avg": "avg"}

#: Weak is crop and flip only (App. F); its released settings use neither label smoothing nor gradient clipping.
CIFAR_AUGMENTS = {
    "strong": Augment(randaugment="rand-m9-n2-mstd1.0", mixup=1.0, cutmix=0.8),
    "weak": Augment(),
}
IMAGENET_AUGMENTS = {
    "strong": Augment(crop="resized", randaugment="rand-m9-n2-mstd0.5", erasing=0.25, mixup=1.0, cutmix=0.8),
    "weak": Augment(crop="resized"),
}

CifarNetwork = Annotated[str, Choices(tuple(CIFAR_MODELS))]
CifarName = Annotated[str, Choices(tuple(CLASSES))]
Augmentation = Annotated[str, Choices(tuple(CIFAR_AUGMENTS))]


def how_vits_work_cifar(
    network: CifarNetwork = "vit_tiny",
    data: CifarName = "cifar100",
    augmentation: Augmentation = "strong",
    fraction: PositiveShare = 1.0,
    epochs: Epochs = 300,
) -> Recipe:
    """Models of HDVW on CIFAR-10 or CIFAR-100, with settings for the fraction of data, epochs and augmentation.

    Source: HDVW, App. A; models in Figs. 5a, 7, 12b and C.1a; fractions from 2 % in Figs. 4 (6 %) and 5b; 75, 150, 300,
    600 and 1200 epochs in Fig. C.2; weak augmentation in Fig. F.1. An epoch of a fraction passes over that fraction:
    our choice.
    Hardware: one RTX 2080 Ti, or one T4.
    Runtime: not published; with the published images per second on CIFAR-100 (ResNet-50 320, ViT-Ti 434, PiT-Ti 364,
        Swin-Ti 469, AlterNet-50 473) about 13, 10, 12, 9 and 9 hours.
    Expected: error on CIFAR-100 (and training loss) of 22.0 % (2.31) for resnet18, 30.4 % (2.17) for vit_small and
        24.1 % (2.29) for pit_tiny; None for the others, which are curves. On CIFAR-100-C (`vitlab stress --with
        cifar_c`) conv_vit_k5 is significantly above conv_vit_k3, without a number (Sec. 2).
    Command: vitlab train "how_vits_work_cifar(network='pit_tiny', data='cifar10', fraction=0.1)"

    Args:
        network: `resnet18`, `resnet50`, `resnet101`, `resnext50`, `preact_resnet50`, `vit_tiny`, `vit_small`,
            `pit_tiny`, `swin_tiny`, `twins_small`, `mixer_tiny`, `alternet50`, `conv_vit_k3`, `conv_vit_k5` or
            `conv_vit_k8`.
        data: `cifar10` or `cifar100`.
        augmentation: `strong` or `weak`.
        fraction: fraction of the training images.
        epochs: epochs of the cosine schedule, after 5 epochs of warm-up.

    >>> how_vits_work_cifar().epochs, how_vits_work_cifar(fraction=0.02).data
    (305, 'cifar100(fraction=0.02)')
    """
    name, settings = choose("network", network, CIFAR_MODELS)
    return _cifar(name, settings, data, augmentation, fraction, epochs)


def how_vits_work_vit(
    patch_size: Annotated[int, Range(1, 32)] = 2,
    pool: Annotated[str, Choices(tuple(POOLS))] = "token",
    depth: Annotated[int, Range(1, 1000)] = 12,
    heads: Heads = 3,
    head_dim: Annotated[int, Range(1, 1024)] = 64,
    data: CifarName = "cifar100",
    augmentation: Augmentation = "strong",
    fraction: PositiveShare = 1.0,
    epochs: Epochs = 300,
) -> Recipe:
    """Variants of HDVW's ViT-Ti on CIFAR: patch sizes, GAP against the class token, heads and their channels.

    Source: HDVW, Fig. 6 (GAP), Fig. C.3 (patches of 2, 4, 8), Figs. C.5 and C.6 (heads, channels per head; half depth).
    The numbers of heads and channels are not printed; the width heads · channels is our choice.
    Hardware: one RTX 2080 Ti, or one T4.
    Runtime: about 10 hours for the default, at the published 434 images per second; not published for others.
    Expected: None (curves); GAP is 2.7 points above the class token.
    Command: vitlab train "how_vits_work_vit(depth=6, heads=12, head_dim=32)"

    Args:
        patch_size: 2, 4 or 8 pixels.
        pool: `token` (the class token) or `avg` (GAP, without one).
        depth: blocks; 6 for Figs. C.5 and C.6.
        heads, head_dim: heads of each attention, and channels of each head.
        data, augmentation, fraction, epochs: as in `how_vits_work_cifar`.

    >>> how_vits_work_vit(pool="avg").model
    "vitlab/vit_tiny_cifar(global_pool='avg', drop_path_rate=0.1, num_classes=100)"
    """
    usual = {"patch_size": 2, "depth": 12, "num_heads": 3, "embed_dim": 192}
    given = {"patch_size": patch_size, "depth": depth, "num_heads": heads, "embed_dim": heads * head_dim}
    settings: dict[str, Any] = {key: value for key, value in given.items() if value != usual[key]}
    settings["global_pool"] = choose("pool", pool, POOLS)
    return _cifar("vit_tiny_cifar", settings, data, augmentation, fraction, epochs)


def how_vits_work_alternet(
    plan: Annotated[Sequence[Annotated[int, Range(0, 3)]], Length(4, 4)] = (0, 1, 1, 2),
    base: Annotated[str, Choices(("preact", "resnet", "resnext"))] = "preact",
    data: CifarName = "cifar100",
    augmentation: Augmentation = "strong",
) -> Recipe:
    """AlterNet-50 on CIFAR with any number of MSAs at the end of its stages.

    Source: HDVW, Figs. 11 and 12a, App. E: MSAs replace convolutions one by one; the build-up rule on ResNet and
    ResNeXt as well. The plan of Fig. 11 is inferred from its text.
    Hardware: one RTX 2080 Ti, or one T4.
    Runtime: about 9 hours, at the published 473 images per second.
    Expected: None (curves); accuracy rises with MSAs in stages 4 and 2, and falls with two or more in stage 3.
    Command: vitlab train "how_vits_work_alternet(plan=(0, 0, 0, 2))"

    Args:
        plan: MSAs in each of the four stages of (3, 4, 6, 4) blocks, at most every second block; zeros for the CNN.
        base: `preact`, `resnet` or `resnext`.
        data, augmentation: as in `how_vits_work_cifar`.
    """
    bases = {"preact": "preact", "resnet": "resnet", "resnext": "resnext"}
    settings = {"plan": tuple(plan), "base": choose("base", base, bases)}
    return _cifar("alternet50_cifar", settings, data, augmentation, 1.0, 300)


def how_vits_work_smoothing(
    network: Annotated[str, Choices(tuple(SMOOTHED))] = "resnet50",
    stages: str = "all",
    data: CifarName = "cifar100",
    augmentation: Augmentation = "strong",
) -> Recipe:
    """A CNN on CIFAR with a 2×2 box blur at the end of its stages; `how_vits_work_cifar` has the plain network.

    Source: HDVW, Fig. 3a (at the end of stages) and App. B (before subsampling): smoothing improves the accuracy,
    calibration and robustness of CNNs, most strongly close to the output. The numbers are from another paper, "Blur is
    an ensemble". Which networks, their training, and a blur after the last stage too are our choices.
    Hardware: one RTX 2080 Ti, or one T4.
    Runtime: not published; about 13 hours for resnet50 at the 320 images per second of the plain network.
    Expected: None (no numbers are printed); above the plain network.
    Command: vitlab train "how_vits_work_smoothing(network='resnet50', stages='3:')"

    Args:
        network: `resnet18`, `resnet50`, `resnet101`, `resnext50` or `preact_resnet50`.
        stages: after which of the four: `all`, `:3` (before each subsampling), `3:` (the last), `upper` or `lower`.
        data, augmentation: as in `how_vits_work_cifar`.

    >>> how_vits_work_smoothing("preact_resnet50").model
    "vitlab/preact_resnet50_cifar(drop_path_rate=0.1, num_classes=100) | SpatialSmoothing(at='stage.out', blocks='all')"
    """
    name, settings = choose("network", network, SMOOTHED)
    blur = PartCall("SpatialSmoothing", {}, "stage.out", stages)
    return _cifar(name, settings, data, augmentation, 1.0, 300, blur)


def how_vits_work_imagenet(
    network: Annotated[str, Choices(tuple(IMAGENET_MODELS))] = "vit_tiny",
    augmentation: Augmentation = "strong",
    epochs: Epochs = 300,
) -> Recipe:
    """The models that HDVW trains on ImageNet-1K itself: ResNet, ViT and AlterNet.

    Source: HDVW, App. A and Figs. C.1b and E.1; batch 128, erasing 0.25, RandAugment mstd 0.5, no clipping. PiT and
    Swin are timm's, pretrained; the origin of the other models in those figures is not stated.
    Hardware: four RTX 2080 Ti.
    Runtime: not published.
    Expected: None (curves only).
    Command: torchrun --nproc-per-node 4 -m vitlab train "how_vits_work_imagenet(network='alternet50')"

    Args:
        network: `resnet50`, `preact_resnet50`, `vit_tiny` or `alternet50`.
        augmentation: `strong` or `weak`.
        epochs: epochs of the cosine schedule, after 5 epochs of warm-up.
    """
    source, name = choose("network", network, IMAGENET_MODELS)
    augment = choose("augmentation", augmentation, IMAGENET_AUGMENTS)
    return _recipe(model(source, name, {"drop_path_rate": 0.1}), "imagenet", 224, 128, augment, 0.0, epochs)


def _cifar(
    name: str, settings: dict[str, Any], data: str, augmentation: str, fraction: float, epochs: int, *parts: PartCall
) -> Recipe:
    classes, augment = choose("data", data, CLASSES), choose("augmentation", augmentation, CIFAR_AUGMENTS)
    if not 0 < fraction <= 1:
        raise VitlabError(f"invalid fraction={fraction!r}; expected 0 < fraction <= 1, for example 0.02 for 2 %")
    images = data if fraction == 1 else f"{data}(fraction={fraction!r})"
    text = model("vitlab", name, {**settings, "drop_path_rate": 0.1, "num_classes": classes}, *parts)
    return _recipe(text, images, 32, 96, augment, 5.0 if augmentation == "strong" else 0.0, epochs)


def _recipe(text: str, data: str, side: int, batch_size: int, augment: Augment, clip: float, epochs: int) -> Recipe:
    """Returns the recipe of HDVW; labels are smoothed if images are mixed."""
    if epochs < 1:
        raise VitlabError(f"invalid epochs={epochs!r}; expected at least 1; {WARMUP} epochs of warm-up are added")
    whole = epochs + WARMUP
    return Recipe(
        model=text,
        data=data,
        image_size=(side, side),
        epochs=whole,
        batch_size=batch_size,
        augment=augment,
        optimizer=Optimizer(lr=1.25e-4, warmup_epochs=WARMUP, warmup_lr=0.0, min_lr=0.0, clip=clip),
        objective=Objective(smoothing=0.1 if augment.mixup else 0.0),
        snapshots=tuple(sorted({WARMUP, min(10, whole), *(whole * tenth // 10 for tenth in range(1, 11))} - {0})),
    )
