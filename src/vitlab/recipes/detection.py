"""Object detection and instance segmentation: Mask R-CNN on COCO as in CB, and a quick run on scenes."""

from __future__ import annotations

from typing import Any

from vitlab.core.errors import VitlabError
from vitlab.core.expressions import ModelExpression
from vitlab.core.recipe import Augment, BatchSize, Detection, Optimizer, Recipe
from vitlab.recipes._parts import Epochs, PartName, Scenes, choose, model, parts
from vitlab.recipes.deit_imagenet import SIZES, Size

__all__ = ["coco_mask_rcnn", "quick_detection"]

#: Drop path of the backbone, as in XCiT's detection runs of these sizes; CB does not state its own.
DROP_PATH = {"tiny": 0.05, "small": 0.05, "base": 0.1}


def coco_mask_rcnn(
    size: Size = "tiny",
    part: PartName = "",
    blocks: str = "not-tapped",
    weights: str = "",
    batch_size: BatchSize = 16,
) -> Recipe:
    """Mask R-CNN with a feature pyramid over a pretrained ViT on COCO, 12 epochs (1× schedule).

    The learning rate falls by a factor of 10 after epochs 8 and 11. The shorter side of training images is one of 480,
    512, …, 800 pixels, that of test images 800; the longer side has at most 1,333.

    Source: CB, Sec. 4.4 and Table 7: ViT-Ti, AdamW, 1e-4 · batch / 16, weight decay 0.05, CB not in the blocks that
        feed the pyramid; XCiT's protocol for what it does not state (sides, warm-up of 500 steps, blocks 3, 5, 7 and
        11, drop path). CB pretrains with its part on ImageNet-1K. To do the same, train
        `context_broadcasting(blocks='8:11')`, and give its `weights` and `blocks='8:11'` here.
    Hardware: not published.
    Runtime: not published.
    Expected: for ViT-Ti, box AP, AP50, AP75 and mask AP, AP50, AP75: plain 34.8, 57.4, 36.5 and 32.5, 54.3, 33.7; with
        CB 35.1, 57.9, 36.8 and 32.8, 54.4, 34.2. Not run here.
    Command: torchrun --nproc-per-node 8 -m vitlab train "coco_mask_rcnn(part='cb')" --root DIR

    Args:
        size: `tiny`, `small` or `base`.
        part: short name of a part, as in `deit_imagenet`. `tap` depends on the grid of the tokens and is refused here,
            because the sizes of the images differ.
        blocks: the blocks with the part. For weights that were trained with the part: the blocks of that run.
        weights: file or run folder of the backbone's weights; '' for timm's pretrained weights.
        batch_size: images per step; the learning rate follows it.

    >>> coco_mask_rcnn(part="cb").model.partition(" | ")[2]
    "ContextBroadcast(blocks='not-tapped')"
    >>> coco_mask_rcnn(batch_size=32).optimizer.lr
    0.0002
    """
    if part == "tap":
        raise VitlabError("part='tap' needs images of one size; those of COCO differ; use another part")
    name = f"deit_{choose('size', size, SIZES)}_patch16_224"
    origin: dict[str, Any] = {"weights": weights} if weights else {"pretrained": True}
    settings = {**origin, "drop_path_rate": DROP_PATH[size], "dynamic_img_size": True}
    calls = parts(part, blocks=blocks if part else "")
    # Parts in the expression of the backbone are inserted before its weights are loaded, which may have them.
    inside = calls if weights and blocks != "not-tapped" else ()
    backbone = str(ModelExpression("timm", name, settings, inside))
    return Recipe(
        model=model("vitlab", "mask_rcnn", {"backbone": backbone}, *(() if inside else calls)),
        data="coco",
        task="detection",
        image_size=(800, 1344),
        epochs=12,
        batch_size=batch_size,
        augment=Augment(crop="none"),
        optimizer=Optimizer(
            lr=1e-4 * batch_size / 16,
            weight_decay=0.05,
            warmup_epochs=500 * 16 / 117_266,
            warmup_lr=1e-7,
            schedule="step",
            milestones=(8, 11),
        ),
        detection=Detection(sides=tuple(range(480, 801, 32)), longest=1333),
        precision="bfloat16",
    )


def quick_detection(part: PartName = "", images: Scenes = 800, epochs: Epochs = 3) -> Recipe:
    """Mask R-CNN over a ViT of 1.2 M parameters on small scenes; the five classes are the shapes.

    Source: vitlab's own; up to three objects per scene, 96×96 pixels, patches of 8×8, no download.
    Hardware: a laptop's CPU.
    Runtime: 276 seconds of CPU time with one thread, three evaluations included.
    Expected: box AP of 53.5 and AP50 of 73.9, mask AP of 48.5 and AP50 of 72.9 with seed 0 on a CPU. It checks that the
        parts work together; it does not show their effect.
    Command: vitlab train quick_detection

    Args:
        part: short name of a part, in the blocks that do not feed the pyramid.
        images: number of training scenes; the test set has 128.
        epochs: number of epochs.

    >>> quick_detection().data
    "scenes(train=800, test=128, objects=3, labels='shape')"
    """
    settings = {"img_size": 96, "patch_size": 8, "embed_dim": 128, "depth": 6, "num_heads": 4}
    backbone = str(ModelExpression("timm", "vit_tiny_patch16_224", settings))
    heads = {"width": 64, "head": 256, "anchor": 16, "proposals": 100, "samples": 64}
    calls = parts(part, blocks="not-tapped" if part else "")
    return Recipe(
        model=model("vitlab", "mask_rcnn", {"backbone": backbone, **heads}, *calls),
        data=f"scenes(train={images}, test=128, objects=3, labels='shape')",
        task="detection",
        image_size=(96, 96),
        epochs=epochs,
        batch_size=8,
        augment=Augment(crop="none"),
        optimizer=Optimizer(lr=1e-3, warmup_epochs=0.5, clip=5.0),
    )
