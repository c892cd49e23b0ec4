"""How images are shown to a model: what its pretrained configuration says, unless told otherwise.

Shape legend: h w pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from PIL import Image
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.data.transforms_factory import create_transform
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.core.errors import VitlabError, unknown

#: Images that are stored cropped: at the size they are stored in, they are shown untouched.
STORED = {"crop": 1.0, "crop_mode": "center"}

_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
_CROP_MODES = ("center", "squash", "border")


@dataclass(frozen=True)
class View:
    """Images are resized, cropped at the centre, and normalised.

    Args:
        size: h, w.
        mean, std: of the normalisation, by channel.
        crop: the share of the shorter side that the crop keeps.
        interpolation: of the resize.
        crop_mode: `center`, `squash` or `border`, as timm calls them.
    """

    size: tuple[int, int]
    mean: tuple[float, ...] = IMAGENET_DEFAULT_MEAN
    std: tuple[float, ...] = IMAGENET_DEFAULT_STD
    crop: float = 0.875
    interpolation: str = "bicubic"
    crop_mode: str = "center"

    def transform(self) -> Callable[[Image.Image], Tensor]:
        """From an image to its pixels, (3, h, w) uint8, not yet normalised.

        >>> View((4, 6)).transform()(Image.new("RGB", (9, 9), "red"))[:, 0, 0]
        tensor([255,   0,   0], dtype=torch.uint8)
        """
        made: Callable[[Image.Image], Tensor] = create_transform(
            (3, *self.size),
            mean=self.mean,  # what `border` fills with
            normalize=False,
            interpolation=self.interpolation,
            crop_pct=self.crop,
            crop_mode=self.crop_mode,
        )
        return made


def view_of(
    model: nn.Module, who: str, given: Mapping[str, Any], ours: Mapping[str, Any], fallback: Mapping[str, Any]
) -> View:
    """The view of a model.

    Args:
        model: timm's, or any with a `pretrained_cfg`; its size is the one that it was built for.
        who: the stress test, for errors.
        given: what the user wants, by the names of `View`; it comes first.
        ours: what the test wants, whatever the model says.
        fallback: where the model says nothing; then `View`'s own.
    """
    _check_names(who, given)
    config = getattr(model, "pretrained_cfg", None) or {}
    names = {name: name for name in ("mean", "std", "interpolation", "crop_mode")} | {"crop": "crop_pct"}
    said = {name: config[key] for name, key in names.items() if config.get(key) is not None}
    chosen: dict[str, Any] = {**fallback, **said, **ours, **given}
    chosen["size"] = given.get("size") or _own_size(model, config) or fallback.get("size", 224)
    try:
        chosen.update({key: _tuple(chosen[key]) for key in ("size", "mean", "std") if key in chosen})
        view = View(**chosen)
        right = _is_right(view)
    except TypeError:  # of another kind altogether
        right = False
    if not right:
        raise VitlabError(
            f"{who} cannot show images by {chosen}: size is (h, w), mean and std are three numbers each, crop is in "
            f"(0, 1], interpolation one of {', '.join(_INTERPOLATIONS)}, crop_mode one of {', '.join(_CROP_MODES)}"
        )
    return view


def _check_names(who: str, given: Any) -> None:
    known = [field.name for field in fields(View)]
    if not isinstance(given, Mapping):
        raise VitlabError(f"{who} got view={given!r}; give a dict with any of {', '.join(known)}")
    for key in given:
        if key not in known:
            raise unknown(f"setting of {who}'s view", key, known)


def _is_right(view: View) -> bool:
    size = len(view.size) == 2 and all(isinstance(side, int) and side > 0 for side in view.size)
    channels = len(view.mean) == len(view.std) == 3 and min(view.std) > 0
    return (
        size
        and channels
        and 0 < view.crop <= 1
        and view.interpolation in _INTERPOLATIONS
        and view.crop_mode in _CROP_MODES
    )


def _tuple(value: Any) -> tuple[Any, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _own_size(model: nn.Module, config: Mapping[str, Any]) -> tuple[int, int] | None:
    try:
        return describe(model).input_size
    except VitlabError:  # of no family that is known: any classifier will do here
        return tuple(config["input_size"])[-2:] if config.get("input_size") else None
