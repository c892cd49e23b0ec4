"""Semantic segmentation: UperNet of CB's Table 6, SegFormer of TAPADL's Table 4, CamVid, and generated scenes."""

from __future__ import annotations

from typing import Annotated

from vitlab.core.bounds import Choices, Range, Seed, Weight
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import ModelExpression
from vitlab.core.recipe import Augment, Objective, Optimizer, Recipe, Segmentation
from vitlab.recipes._parts import Epochs, PartName, Scenes, Width, choose, identity_parts, model, parts

__all__ = ["ade20k_upernet", "camvid_upernet", "cityscapes_segformer", "quick_segmentation"]

_DEIT = {
    "ti": "timm/deit_tiny_patch16_224",
    "s": "timm/deit_small_patch16_224",
    "b": "timm/deit_base_patch16_224",
}

_EPOCH = 4000  # iterations


def assembled(
    name: str, backbone: str, settings: dict[str, object], part: str, blocks: str = "", identity: bool = False
) -> str:
    """Returns the expression of an assembly with the parts of a short name."""
    calls = identity_parts(part, blocks) if identity else parts(part, blocks=blocks)
    return str(ModelExpression("vitlab", name, {"backbone": backbone, **settings}, calls))


def ade20k_upernet(
    size: Annotated[str, Choices(tuple(_DEIT))] = "ti",
    part: PartName = "",
    iterations: Annotated[int, Range(1, 10**8)] = 160_000,
    backbone: str = "",
    width: Width = 512,
) -> Recipe:
    """UperNet with a ViT on ADE20K, with and without CB.

    Source: CB Table 6 and Section 4.3; the crops and the warm-up of 1,500 iterations are those of XCiT's and Swin's
    code, which use mmsegmentation: images are resized to within 512×2048 in training and test, and no class fills 75 %
    of a crop. The colour jitter is ours, without hue. The section gives the decoder 192, 384 and 512 channels; the
    parameter counts of the table need 512 for all.
    Hardware: one GPU of 80 GB with bfloat16.
    Runtime: about a day for 160,000 iterations (estimated).
    Expected: mIoU of ViT-Ti/S/B after 160,000 iterations in the paper: 38.9, 43.3, 45.0, and 39.0, 43.9, 45.6 with CB,
    from weights that were trained with the part; not run here.
    Command: vitlab train "ade20k_upernet(size='ti', part='cb', backbone='file/RUN')" --root DATA

    Args:
        size: `ti`, `s` or `b`, with DeiT's ImageNet-1K weights of timm.
        part: short name of a part, as in `deit_imagenet`.
        iterations: 160,000 or 40,000 in the paper; at most 4,000, or a multiple of 4,000.
        backbone: a model expression instead of timm's weights, for example `file/RUN` of a classification run with the
            part: the paper pretrains with it.
        width: channels of the decoder.
    """
    weights = backbone or choose("size", size, _DEIT) + "(pretrained=True)"
    if iterations > _EPOCH and iterations % _EPOCH:
        raise VitlabError(f"invalid iterations={iterations}; expected at most {_EPOCH}, or a multiple of {_EPOCH}")
    return Recipe(
        model=assembled("upernet", weights, {"width": width}, "" if backbone else part),
        data="ade20k",
        task="segmentation",
        image_size=(512, 512),
        epochs=max(1, iterations // _EPOCH),
        steps_per_epoch=min(iterations, _EPOCH),
        batch_size=16,
        augment=Augment(flip=0.5),
        optimizer=Optimizer(
            lr=6e-5, weight_decay=0.01, schedule="poly", warmup_epochs=1500 / _EPOCH, warmup_lr=6e-11, min_lr=0.0
        ),
        segmentation=Segmentation(base_size=(512, 2048), cat_max_ratio=0.75, inference="slide", stride=(341, 341)),
        precision="bfloat16",
        compile=True,
        evaluate_every=10,
    )


def cityscapes_segformer(part: PartName = "", diversification: Weight = 0.0, backbone: str = "") -> Recipe:
    """SegFormer's decoder with FAN-B-Hybrid on Cityscapes, with TAP and ADL.

    Source: TAPADL Section 4.3 and its released code: 1024×1024 crops, 160,000 iterations, AdamW with 6e-5 and ten times
    more for the head, no weight decay on norms and position embeddings, windows with a stride of 768, images
    within 1024×2048 (their own size), and no class that fills 75 % of a crop.
    Hardware: eight GPUs of 80 GB.
    Runtime: about a day (estimated).
    Expected: mIoU 82.2 for FAN-B-Hybrid and 82.9 with TAP and ADL in the paper; not run here.
    Command: vitlab train "cityscapes_segformer(part='tap', diversification=1.0, backbone='file/RUN')" --root DATA

    Args:
        part: short name of a part, as in `deit_imagenet`.
        diversification: weight λ of ADL; 0 for none.
        backbone: a model expression instead of FAN-B-Hybrid with random weights; the paper uses one that was trained
            on ImageNet with the part.
    """
    return Recipe(
        model=assembled("segformer", backbone or "vitlab/fan_base_hybrid", {"width": 768}, "" if backbone else part),
        data="cityscapes",
        task="segmentation",
        image_size=(1024, 1024),
        epochs=40,
        steps_per_epoch=_EPOCH,
        batch_size=8,
        augment=Augment(flip=0.5),
        optimizer=Optimizer(
            lr=6e-5,
            weight_decay=0.01,
            schedule="poly",
            warmup_epochs=1500 / _EPOCH,
            warmup_lr=6e-11,
            min_lr=0.0,
            head_lr=10.0,
        ),
        objective=Objective(diversification=float(diversification)),
        segmentation=Segmentation(base_size=(1024, 2048), cat_max_ratio=0.75, inference="slide", stride=(768, 768)),
        precision="bfloat16",
        evaluate_every=4,
    )


def camvid_upernet(
    part: str = "",
    identity: bool = True,
    diversification: Weight = 0.0,
    weights: str = "",
    epochs: Epochs = 60,
    width: Width = 256,
    seed: Seed = 0,
) -> Recipe:
    """UperNet with DeiT-Ti on CamVid, fine-tuned on whole images of 360×480.

    Source: vitlab's own, after CB Table 6; parts are added at fine-tuning, not before.
    Hardware: one GPU; on an H200 the step takes 15 ms (37 ms without `compile`).
    Runtime: about a minute per 100 epochs on an H200, and the compilation.
    Expected: mIoU of 62.8 after 40 epochs (three seeds, 62.6 to 63.1); with CB_S 62.8, TAP 62.8, ADL 62.6, all begun as
    the identity: no clear difference (docs/results/finetuning.md).
    Command: vitlab train "camvid_upernet(weights='deit_tiny_patch16_224.safetensors')" --root DATA

    Args:
        part: short name of a part, as in `deit_imagenet`, or a part with settings.
        identity: whether the part begins as the identity, so that it does not destroy the trained weights.
        diversification: weight λ of ADL; 0 for none.
        weights: a file with ImageNet weights of DeiT-Ti; by default timm's are downloaded.
        epochs: number of epochs.
        width: channels of the decoder.
        seed: of the decoder, order and augmentation.
    """
    source = {"weights": weights} if weights else {"pretrained": True}
    backbone = model("timm", "deit_tiny_patch16_224", source)
    return Recipe(
        model=assembled("upernet", backbone, {"width": width, "auxiliary_width": width // 2}, part, identity=identity),
        data="camvid",
        task="segmentation",
        image_size=(360, 480),
        epochs=epochs,
        batch_size=8,
        augment=Augment(flip=0.5),
        optimizer=Optimizer(lr=1e-4, weight_decay=0.01, schedule="poly", warmup_epochs=2.0, min_lr=0.0, head_lr=5.0),
        objective=Objective(diversification=float(diversification)),
        precision="bfloat16",
        compile=True,
        evaluate_every=10,
        seed=seed,
    )


def quick_segmentation(
    part: PartName = "", diversification: Weight = 0.0, images: Scenes = 1024, epochs: Epochs = 6
) -> Recipe:
    """UperNet of 0.5 M parameters with a small ViT on the masks of scenes, to check the installation.

    Source: vitlab's own; up to two objects per scene, background and five shapes, 64×64 pixels, patches of 4×4.
    Hardware: a laptop's CPU.
    Runtime: about three minutes on one core.
    Expected: mIoU of 52.3 with seed 0 on a CPU; 11.5 if every pixel is background, the most frequent class. It checks
    that the parts work together; it does not show their effect.
    Command: vitlab train quick_segmentation

    Args:
        part: short name of a part, as in `deit_imagenet`.
        diversification: weight λ of ADL; 0 for none.
        images: number of training scenes; the test set has a quarter as many.
        epochs: number of epochs.
    """
    settings = "img_size=64, patch_size=4, embed_dim=64, depth=4, num_heads=4, class_token=False, global_pool='avg'"
    backbone = f"timm/vit_tiny_patch16_224({settings})"
    return Recipe(
        model=assembled("upernet", backbone, {"width": 32, "auxiliary_width": 16}, part),
        data=f"scenes(train={images}, test={max(1, images // 4)}, objects=2, labels='shape')",
        task="segmentation",
        image_size=(64, 64),
        epochs=epochs,
        batch_size=16,
        augment=Augment(flip=0.5),
        optimizer=Optimizer(lr=2e-3, weight_decay=0.01, schedule="poly", warmup_epochs=1.0, min_lr=0.0),
        objective=Objective(diversification=float(diversification)),
        segmentation=Segmentation(scale=(0.75, 1.5), jitter=0.2),
    )
