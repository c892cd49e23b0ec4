"""The distilled networks of Tables S12 and S13 at each scale; there are none at `small`."""

from __future__ import annotations

from typing import Any

from vitlab.core.experiment import Job, Scale
from vitlab.experiments.context_broadcasting._shared import IMAGENET, MACS, call, full_minutes, runs

#: Distillation in the `quick` recipe: a small student with a distillation token, and a small teacher.
_STUDENT = (
    "timm/deit_tiny_distilled_patch16_224"
    "(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)"
)
_TEACHER = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3, num_classes=25)"
_PARTS = {"": "", "cb": " | ContextBroadcast(blocks='upper')", "cb_s": " | ScaledContextBroadcast"}


def distilled(scale: Scale, arm: str, size: str, part: str, *procedures: str, **fields: Any) -> list[Job]:
    """Returns the jobs on the training runs of a distilled network, one per procedure and seed."""
    if scale == "smoke":
        changes = (
            f"model={_STUDENT}{_PARTS[part]}",
            "objective.distillation=hard",
            f"objective.teacher={_TEACHER}",
        )
        return runs(scale, arm, "quick(images=96, epochs=1)", *procedures, changes=changes, **fields)
    if scale == "full":
        recipe = call("context_broadcasting_distilled" if part else "deit_distilled", {"size": size, "part": part})
        cost = {**IMAGENET, "gpu_minutes": full_minutes(MACS[size])}
        return runs(scale, arm, recipe, *procedures, **{**cost, **fields})
    return []
