"""timm's default configuration of a model for ImageNet-1K."""

from __future__ import annotations

from typing import Any

from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD


def imagenet_cfg(first_conv: str = "patch_embed.proj", **changes: Any) -> dict[str, Any]:
    """Returns input size, number of classes, mean and standard deviation, and the names of the first and last layer.

    >>> imagenet_cfg(crop_pct=1.0)["crop_pct"]
    1.0
    """
    return {
        "num_classes": 1000, "input_size": (3, 224, 224), "pool_size": None, "crop_pct": 0.9,
        "interpolation": "bicubic", "mean": IMAGENET_DEFAULT_MEAN, "std": IMAGENET_DEFAULT_STD,
        "first_conv": first_conv, "classifier": "head", **changes,
    }  # fmt: skip
