"""`Preprocessing`: the description of how an image is converted to a model input, and its transform.

Shape legend: h w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from PIL import Image
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.data.transforms import CenterCropOrPad, ResizeKeepRatio, str_to_interp_mode
from torch import Tensor
from torchvision import transforms
from torchvision.transforms import functional as F

from vitlab.core.errors import VitlabError, unknown
from vitlab.data.images import Channels

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
CROP_MODES = ("center", "squash", "border")


@dataclass(frozen=True)
class Preprocessing:
    """Resize, centre crop and normalise. Images that already have the input size are only normalised.

    Args:
        size: (h, w) of the input.
        mean, std: normalisation per channel, for pixels in [0, 1].
        crop: crop size as a fraction of the resized image; images are resized to floor(size / crop).
        crop_mode: `center` resizes the shorter side, `squash` both sides, `border` the longer side and pads.
        interpolation: interpolation of the resize, one of `INTERPOLATIONS`.
        classes: names of the model's outputs in order; empty if not known.
        source: origin of these values, for provenance.

    >>> Preprocessing((224, 224), crop=0.9).resize
    (248, 248)
    """

    size: tuple[int, int]
    mean: Channels = IMAGENET_DEFAULT_MEAN
    std: Channels = IMAGENET_DEFAULT_STD
    crop: float = 0.875
    crop_mode: str = "center"
    interpolation: str = "bicubic"
    classes: tuple[str, ...] = ()
    source: str = "given"

    def __post_init__(self) -> None:
        """Convert lists to tuples and raise an error for invalid values."""
        given = asdict(self)
        try:
            size = (self.size, self.size) if isinstance(self.size, int) else tuple(self.size)
            lists = {"size": size, "mean": tuple(self.mean), "std": tuple(self.std), "classes": tuple(self.classes)}
            for name, value in lists.items():
                object.__setattr__(self, name, value)
            valid = self._valid()
        except TypeError:
            valid = False
        if not valid:
            shown = {name: value for name, value in given.items() if name not in ("classes", "source")}
            raise VitlabError(
                f"invalid preprocessing {shown}; expected size (height, width), mean and std of three numbers each "
                f"(std above 0), crop in (0, 1], interpolation one of {', '.join(INTERPOLATIONS)}, "
                f"crop_mode one of {', '.join(CROP_MODES)}"
            )

    @property
    def resize(self) -> tuple[int, int]:
        """(h, w) of the resized image, before the crop."""
        height, width = (math.floor(side / self.crop) for side in self.size)
        return height, width

    def transform(self) -> Callable[[Image.Image], Tensor]:
        """The transform from an RGB image to its pixels, (3, h, w) uint8, not normalised.

        >>> Preprocessing((4, 6)).transform()(Image.new("RGB", (9, 9), "red"))[:, 0, 0]
        tensor([255,   0,   0], dtype=torch.uint8)
        """
        return _Transform(self)

    def changed(self, given: Mapping[str, Any]) -> Preprocessing:
        """A copy with the given fields replaced and listed in `source`; unknown names are an error."""
        check_names(given)
        copy = replace(self, **given)
        other = [name for name in given if getattr(copy, name) != getattr(self, name)]
        return replace(copy, source=f"{self.source}, changed: {', '.join(other)}") if other else self

    def record(self) -> dict[str, Any]:
        """The description as JSON types, for provenance, without class names."""
        values = {name: value for name, value in asdict(self).items() if name != "classes"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def _valid(self) -> bool:
        sides = all(isinstance(side, int) and side > 0 for side in self.size)
        channels = len(self.mean) == len(self.std) == 3 and min(self.std) > 0 and all(map(math.isfinite, self.mean))
        return (
            len(self.size) == 2
            and sides
            and channels
            and 0 < self.crop <= 1
            and self.interpolation in INTERPOLATIONS
            and self.crop_mode in CROP_MODES
        )


def check_names(given: Any) -> None:
    """Raise an error unless `given` is a mapping with names of `Preprocessing`'s fields."""
    known = [field.name for field in fields(Preprocessing)]
    if not isinstance(given, Mapping):
        raise VitlabError(
            f"invalid preprocessing={given!r}; expected a Preprocessing or a dict with any of {', '.join(known)}"
        )
    for key in given:
        if key not in known:
            raise unknown("preprocessing setting", key, known)


def crop_for(size: int, resize: int) -> float:
    """The crop such that floor(size / crop) equals `resize`: size / resize, corrected for rounding.

    >>> crop_for(224, 256), int(224 / crop_for(224, 232))
    (0.875, 232)
    """
    crop = size / resize
    while math.floor(size / crop) < resize:
        crop = math.nextafter(crop, 0.0)
    return crop


class _Transform:
    """A picklable transform, for worker processes."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        self.size = preprocessing.size
        mode = str_to_interp_mode(preprocessing.interpolation)
        resize: Any
        crop: Any = transforms.CenterCrop(preprocessing.size)
        if preprocessing.crop_mode == "squash":
            resize = transforms.Resize(preprocessing.resize, mode)
        elif preprocessing.crop_mode == "border":
            resize = ResizeKeepRatio(preprocessing.resize, longest=1.0, interpolation=preprocessing.interpolation)
            red, green, blue = (round(255 * value) for value in preprocessing.mean)
            crop = CenterCropOrPad(list(preprocessing.size), fill=(red, green, blue))
        elif preprocessing.resize[0] == preprocessing.resize[1]:
            resize = transforms.Resize(preprocessing.resize[0], mode)
        else:  # not square: the resized image must cover the crop, which would add black borders otherwise
            resize = ResizeKeepRatio(preprocessing.resize, interpolation=preprocessing.interpolation)
        self.steps = transforms.Compose([resize, crop])

    def __call__(self, image: Image.Image) -> Tensor:
        if image.size != (self.size[1], self.size[0]):
            image = self.steps(image)
        pixels: Tensor = F.pil_to_tensor(image)
        return pixels
