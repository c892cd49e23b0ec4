"""The networks of the dense tasks at each scale: UperNet on ADE20K and CamVid, Mask R-CNN on COCO.

At `full` the backbone is first trained on ImageNet-1K, with the same module. Costs of the dense training are rough: a
step of UperNet with 16 crops of 512×512 is counted as 84 images of 224×224 (their pixels), forward and backward, with
the decoder as much as the backbone.
"""

from __future__ import annotations

from typing import Any

from vitlab.core.experiment import Job, Scale
from vitlab.experiments.context_broadcasting._shared import MACS, REPEATED, Network, call, full_minutes, runs

_IMAGES = 1_281_167 * 300  # of a training run on ImageNet-1K


#: The sizes of networks in the recipe `ade20k_upernet`.
_SIZES = {"tiny": "ti", "small": "s", "base": "b"}

#: Upper blocks that do not feed the feature pyramid (blocks 3, 5, 7 and 11 do). The paper trains on ImageNet with CB in
#: all upper blocks. The same blocks in both stages are our choice, because weights are loaded with their parts.
_UNTAPPED = "8:11"
_PLAIN_TINY = "deit_imagenet(size='tiny')"

_PARTS = {"": "", "cb": " | ContextBroadcast(blocks='upper')", "cb_s": " | ScaledContextBroadcast"}


#: What differs where UperNet is trained.
ON_CAMVID: dict[Scale, tuple[str, ...]] = {
    "small": (
        "UperNet with DeiT-Ti on CamVid replaces the networks on ADE20K. The backbone starts from its published "
        "weights without the module, which is added at fine-tuning.",
    ),
    **REPEATED,
}


def upernet_recipe(size: str, part: str = "", thousands: int = 160, backbone: str = "") -> str:
    """Returns the recipe of UperNet on ADE20K; without a backbone, that with timm's weights."""
    settings = {"size": _SIZES[size], "part": part, "iterations": 1000 * thousands, "backbone": backbone}
    return call("ade20k_upernet", settings)


def upernet(scale: Scale, arm: str, size: str, part: str, thousands: int, *procedures: str, **fields: Any) -> list[Job]:
    """Returns the jobs on UperNet with a ViT, one per procedure and seed.

    Args:
        scale: the scale; at `small` the backbone is DeiT-Ti, and the module is added at fine-tuning.
        arm: the name of the arm.
        size, part: of the backbone.
        thousands: iterations at `full`.
        procedures: by default `training`.
        fields: other fields of the jobs.
    """
    if scale == "smoke":
        recipe = call("quick_segmentation", {"part": part, "images": 32, "epochs": 1})
        return runs(scale, arm, recipe, *procedures, **fields)
    if scale == "small":
        cost = {"needs": ("camvid", "deit_tiny_patch16_224.safetensors"), "gpu_minutes": 15.0, "gigabytes": 0.1}
        recipe = call("camvid_upernet", {"part": part, "weights": "{root}/deit_tiny_patch16_224.safetensors"})
        return runs(scale, arm, recipe, *procedures, **{**cost, **fields})
    if scale == "full":
        images = 2 * 1000 * thousands * 84
        cost = {
            "needs": ("imagenet", "ade20k"),
            "gigabytes": 155.0,
            "gpu_minutes": round(full_minutes(MACS[size]) * (1 + images / _IMAGES)),
            "trained": Network(part, size).recipe("full"),
        }
        backbone = f"timm/deit_{size}_patch16_224(weights='{{trained}}'){_PARTS[part]}"
        recipe = upernet_recipe(size, part, thousands, backbone)
        return runs(scale, arm, recipe, *procedures, **{**cost, **fields})
    return []


def mask_rcnn(scale: Scale, arm: str, part: str) -> list[Job]:
    """Returns the jobs on Mask R-CNN with ViT-Ti, one per seed; there is none at `small`."""
    if scale == "smoke":
        recipe = call("quick_detection", {"part": part, "images": 16, "epochs": 1})
        return runs(scale, arm, recipe, "average_precision", images=8)
    if scale == "full":
        cost = {
            "images": 5000,
            "needs": ("imagenet", "coco"),
            "gigabytes": 176.0,
            "gpu_minutes": full_minutes(MACS["tiny"]) + 2400,
            "trained": f"context_broadcasting(size='tiny', part='cb', blocks={_UNTAPPED!r})" if part else _PLAIN_TINY,
        }
        settings = "weights='{trained}', drop_path_rate=0.05, dynamic_img_size=True"
        inserted = f" | ContextBroadcast(blocks={_UNTAPPED!r})" if part else ""
        changes = (f'model=vitlab/mask_rcnn(backbone="timm/deit_tiny_patch16_224({settings}){inserted}")',)
        return runs(scale, arm, "coco_mask_rcnn(size='tiny')", "average_precision", changes=changes, **cost)
    return []
