"""The networks of the dense tasks at each scale: UperNet on ADE20K and CamVid, Mask R-CNN on COCO.

At `full` the backbone is first trained on ImageNet-1K, with the same module. Costs of the dense training are rough: a
step of UperNet with 16 crops of 512×512 is counted as 84 images of 224×224 (their pixels), forward and backward, with
the decoder as much as the backbone.
"""

from __future__ import annotations

from typing import Any

from vitlab.core.experiment import Job, Scale
from vitlab.experiments.context_broadcasting._shared import MACS, Network, call, full_minutes, runs

_IMAGES = 1_281_167 * 300  # of a training run on ImageNet-1K


def upernet(scale: Scale, arm: str, size: str, part: str, thousands: int, *procedures: str, **fields: Any) -> list[Job]:
    """Returns the jobs on UperNet with a ViT, one per procedure and seed.

    Args:
        scale: the scale; there is no ViT-B at `small`, and one length of training only.
        arm: the name of the arm.
        size, part: of the backbone.
        thousands: iterations at `full`.
        procedures: by default `training`.
        fields: other fields of the jobs.
    """
    if scale == "smoke":
        return runs(scale, arm, call("quick_segmentation", {"part": part}), *procedures, **fields)
    if scale == "small":
        cost = {"needs": ("camvid",), "gpu_minutes": 15.0, "gigabytes": 0.1}
        return runs(scale, arm, call("camvid_upernet", {"part": part}), *procedures, **{**cost, **fields})
    if scale == "full":
        images = 2 * 1000 * thousands * 84
        cost = {
            "needs": ("imagenet", "ade20k"),
            "gigabytes": 155.0,
            "gpu_minutes": full_minutes(MACS[size]) * (1 + images / _IMAGES),
            "changes": ("steps_per_epoch=2000", f"epochs={thousands // 2}"),
            "trained": Network(part, size).recipe("full"),
        }
        recipe = call("ade20k_upernet", {"size": size, "part": part, "weights": "{trained}"})
        return runs(scale, arm, recipe, *procedures, **{**cost, **fields})
    return []


def mask_rcnn(scale: Scale, arm: str, part: str) -> list[Job]:
    """Returns the training jobs of Mask R-CNN with ViT-Ti, one per seed; there is none at `small`."""
    if scale == "smoke":
        return runs(scale, arm, call("quick_detection", {"part": part}))
    if scale == "full":
        cost = {
            "needs": ("imagenet", "coco"),
            "gigabytes": 176.0,
            "gpu_minutes": full_minutes(MACS["tiny"]) + 2400,
            "trained": Network(part, "tiny").recipe("full"),
        }
        return runs(scale, arm, call("coco_mask_rcnn", {"size": "tiny", "part": part, "weights": "{trained}"}), **cost)
    return []
