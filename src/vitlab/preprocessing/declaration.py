"""Read the preprocessing that timm, torchvision, Hugging Face or a vitlab file declares for a model.

A declaration is a mapping with any of the fields of `Preprocessing`. `declare` stores it on the model, so that copies
of the model have it too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from timm.data import ImageNetInfo, infer_imagenet_subset
from torch import nn

from vitlab.adapters.wrappers import unwrap
from vitlab.core.errors import VitlabError
from vitlab.preprocessing.description import check_names, crop_for

_ATTRIBUTE = "vitlab_preprocessing"

#: The resampling filters of Pillow by number, as Hugging Face's configurations store them.
_PILLOW = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")

#: The image processors of Hugging Face for which a size of one number is the shorter side (`default_to_square=False`).
_SHORTER_SIDE = frozenset(
    ["Bit", "ChineseCLIP", "CLIP", "ConvNext", "Levit", "MobileNetV1", "MobileNetV2", "MobileViT", "PoolFormer"]
)


def declare(model: nn.Module, **fields: Any) -> None:
    """Store a declaration of preprocessing on a model; it replaces an earlier one.

    Args:
        model: any model.
        fields: any fields of `Preprocessing`; `source` is their origin.
    """
    check_names(fields)
    object.__setattr__(unwrap(model), _ATTRIBUTE, dict(fields))


def declared(model: nn.Module) -> dict[str, Any] | None:
    """The declaration stored on a model, else that of timm's `pretrained_cfg`, else None."""
    model = unwrap(model)
    own = getattr(model, _ATTRIBUTE, None)
    if own is not None:
        return dict(own)
    config = getattr(model, "pretrained_cfg", None)
    return from_timm(config, model) if isinstance(config, Mapping) and config.get("mean") else None


def from_timm(config: Mapping[str, Any], model: Any = None) -> dict[str, Any]:
    """The declaration in a `pretrained_cfg` of timm.

    >>> declaration = from_timm({"mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.9, "interpolation": "bicubic"})
    >>> declaration["crop"], declaration["interpolation"]
    (0.9, 'bicubic')
    """
    keys = {name: name for name in ("mean", "std", "crop_mode", "interpolation")} | {"crop": "crop_pct"}
    result = {name: config[key] for name, key in keys.items() if config.get(key) is not None}
    size = config.get("input_size")
    if size is not None:
        result["size"] = tuple(size)[-2:]
    classes = config.get("label_names") or _imagenet_classes(model if model is not None else config)
    return {**result, "classes": tuple(classes), "source": "timm pretrained_cfg"}


def from_torchvision(preset: Any, categories: Sequence[str] = ()) -> dict[str, Any]:
    """The declaration in `weights.transforms()` of torchvision's classification weights."""
    try:
        crop, resize = int(preset.crop_size[0]), int(preset.resize_size[0])
        result = {
            "size": (crop, crop),
            "crop": crop_for(crop, resize),
            "interpolation": str(preset.interpolation.value),
            "mean": tuple(preset.mean),
            "std": tuple(preset.std),
        }
    except (AttributeError, TypeError, IndexError) as error:
        raise VitlabError(f"these torchvision weights have no image classification preset ({error})") from error
    names = _imagenet_classes({"num_classes": len(categories)}) if len(categories) == 1000 else tuple(categories)
    return {**result, "crop_mode": "center", "classes": names, "source": "torchvision weights.transforms()"}


def from_hugging_face(config: Mapping[str, Any], labels: Mapping[Any, str] | None = None) -> dict[str, Any]:
    """The declaration in a `preprocessor_config.json` of Hugging Face.

    Args:
        config: the content of the file.
        labels: the model's `id2label`; names such as `LABEL_0` are ignored.

    >>> declaration = from_hugging_face({"size": {"height": 8, "width": 8}, "resample": 2, "image_mean": [0.5] * 3})
    >>> [declaration[name] for name in ("size", "crop_mode", "interpolation", "std")]
    [(8, 8), 'squash', 'bilinear', (0.229, 0.224, 0.225)]
    """
    config = config.get("image_processor", config)  # nested in the file of a processor for images and text
    kind = _kind(config)
    offset = " with an offset" if config.get("rescale_offset") else ""
    if not config.get("do_rescale", True) or offset or abs(config.get("rescale_factor", 1 / 255) * 255 - 1) > 1e-3:
        raise VitlabError(
            f"the image processor rescales by {config.get('rescale_factor')}{offset}; expected 1/255; give "
            "preprocessing= with the mean and std for pixels in [0, 1]"
        )
    result: dict[str, Any] = {**_geometry(config), "source": "Hugging Face preprocessor_config.json"}
    if config.get("do_flip_channel_order", kind == "MobileViT"):
        warnings.warn(
            "the image processor of this model swaps red and blue, which vitlab does not: its predictions are worse "
            "than published ones; swap the channels in the forward of a model of your own",
            stacklevel=2,
        )
    if config.get("do_normalize", kind != "MobileViT"):
        result["mean"] = tuple(config.get("image_mean") or (0.485, 0.456, 0.406))
        result["std"] = tuple(config.get("image_std") or (0.229, 0.224, 0.225))
    else:
        result["mean"], result["std"] = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if config.get("include_top", kind == "EfficientNet"):  # EfficientNet's processor divides by std twice
        result["std"] = tuple(value**2 for value in result["std"])
    resample = config.get("resample", 2)
    if isinstance(resample, int) and 0 <= resample < len(_PILLOW):
        result["interpolation"] = _PILLOW[resample]
    return {**result, "classes": hugging_face_classes(labels)}


def hugging_face_classes(labels: Mapping[Any, str] | None) -> tuple[str, ...]:
    """Names of the outputs from `id2label`; () if the configuration only numbers them.

    >>> hugging_face_classes({0: "cat", 1: "dog"}), hugging_face_classes({0: "LABEL_0", 1: "LABEL_1"})
    (('cat', 'dog'), ())
    """
    if not labels:
        return ()
    names = tuple(str(labels[key]) for key in sorted(labels, key=int))
    return () if all(name == f"LABEL_{i}" for i, name in enumerate(names)) else names


def _kind(config: Mapping[str, Any]) -> str:
    """The family of a Hugging Face image processor, for example `ConvNext`; empty if the file does not name it."""
    name = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    return name.removesuffix("Fast").removesuffix("Pil").removesuffix("ImageProcessor").removesuffix("FeatureExtractor")


def _geometry(config: Mapping[str, Any]) -> dict[str, Any]:
    """Size, crop and crop mode of a Hugging Face image processor."""
    given = config.get("size", 224)
    shorter = isinstance(given, int) and (_kind(config) in _SHORTER_SIDE or "crop_pct" in config)
    size = _sides({"shortest_edge": given} if shorter else given)
    if not config.get("do_resize", True):
        return {"size": size[0]} if size[0] else {}
    exact, shortest = size
    resized = shortest and (int(256 / 224 * shortest) if _kind(config) == "Levit" else shortest)
    cropped = _sides(config["crop_size"])[0] if config.get("do_center_crop") and config.get("crop_size") else None
    if "crop_pct" in config and config["crop_pct"] and shortest and shortest < 384:  # ConvNeXt's processor
        return {"size": (shortest, shortest), "crop": float(config["crop_pct"]), "crop_mode": "center"}
    if "crop_pct" in config and shortest:
        return {"size": (shortest, shortest), "crop": 1.0, "crop_mode": "squash"}
    if exact and (cropped is None or cropped[0] <= exact[0]):
        target = cropped or exact
        return {"size": target, "crop": crop_for(target[0], exact[0]), "crop_mode": "squash"}
    if shortest and resized:
        target = cropped or (shortest, shortest)
        if target[0] <= resized:
            return {"size": target, "crop": crop_for(target[0], resized), "crop_mode": "center"}
    raise VitlabError(
        f"unsupported size={config.get('size')!r} of the image processor; give preprocessing= with a size"
    )


def _sides(size: Any) -> tuple[tuple[int, int] | None, int | None]:
    """A size of a Hugging Face configuration as ((height, width), None) or (None, shortest edge)."""
    if isinstance(size, int):
        return (size, size), None
    if isinstance(size, Mapping) and "height" in size and "width" in size:
        return (int(size["height"]), int(size["width"])), None
    if isinstance(size, Mapping) and "shortest_edge" in size:
        return None, int(size["shortest_edge"])
    return None, None


def _imagenet_classes(model: Any) -> tuple[str, ...]:
    """The WordNet ids of the outputs, if their number is that of an ImageNet subset, else ()."""
    subset = infer_imagenet_subset(model)
    return tuple(ImageNetInfo(subset).label_names()) if subset else ()
