"""The base class of assemblies: a backbone, the places where its maps are read, and its input size.

Shape legend: B batch, C channels, H W pixels of an image, h w grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.adapters import blank_images, built_size, check_takes_images, describe
from vitlab.adapters.flow import preserve_state
from vitlab.adapters.wrappers import guard_hooks
from vitlab.assemblies.input_size import set_input_size
from vitlab.assemblies.taps import Tap, tapped_places
from vitlab.core.anatomy import Anatomy
from vitlab.core.bounds import Length, Range
from vitlab.core.errors import VitlabError
from vitlab.fitted import parts
from vitlab.preprocessing import declare
from vitlab.preprocessing.declaration import declared

#: Settings of all assemblies.
Sides = tuple[Annotated[int, Range(1, 8192)], Annotated[int, Range(1, 8192)]]
Taps = Annotated[Sequence[Annotated[int, Range(0, 10_000)]], Length(4, 4, distinct=True)]
Width = Annotated[int, Range(1, 8192)]
Classes = Annotated[int, Range(2, 20_000)]


class Assembly(nn.Module):
    """A model around a backbone. Subclasses add neck and heads, and use `maps`.

    The backbone's classifier is removed. Parameters that the maps do not depend on (a last norm) need no gradients, so
    that DDP works.

    Args:
        backbone: a model that `describe` supports; it is changed.
        size: (H, W) of the images; default the backbone's own.
        taps: indices of the four blocks to read; see `tapped_places` for the default.
    """

    def __init__(
        self, backbone: nn.Module, size: tuple[int, int] | None = None, taps: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        anatomy = _first_description(backbone, size)
        check_takes_images(backbone, anatomy.input_size, type(self).__name__)
        self.img_size = anatomy.input_size if size is None else pair(size)
        self.multiple = _multiple(anatomy)
        inner = self.backbone_size(self.img_size)
        set_input_size(backbone, inner)
        remove: Any = getattr(backbone, "reset_classifier", None)
        if callable(remove):
            remove(0)
        anatomy = _described(backbone, inner)
        _rename_parts(backbone)
        places = tapped_places(anatomy, taps)
        self.backbone = backbone
        self.taps = nn.ModuleList(Tap(place, inner) for place in places)
        self.tapped = tuple(_block_names(anatomy, {place.path for place in places}))
        self.channels = tuple(place.dim for place in places)
        self.strides = tuple(inner[0] / place.layout.grid[0] for place in places)
        for tap in self.taps:
            assert isinstance(tap, Tap)
            backbone.get_submodule(tap.place.path).register_forward_hook(tap.keep)
        guard_hooks()
        self._freeze_unused(inner)
        known: dict[str, Any] = declared(backbone) or {}
        kept = {name: known[name] for name in ("mean", "std", "interpolation", "source") if name in known}
        declare(self, size=self.img_size, **kept)

    def backbone_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """The image size after padding: each side rounded up to a multiple of the backbone's stride."""
        h, w = (math.ceil(side / self.multiple) * self.multiple for side in size)
        return h, w

    def padded(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) with zeros added at the bottom and right, up to `backbone_size`."""
        height, width = images.shape[-2:]
        h, w = self.backbone_size((height, width))
        return F.pad(images, (0, w - width, 0, h - height)) if (h, w) != (height, width) else images

    def maps(self, images: Tensor) -> list[Tensor]:
        """The maps (B, C, h, w) of the backbone at its taps, from fine to coarse; images have a `backbone_size`."""
        if tuple(images.shape[-2:]) != self.backbone_size(self.img_size):
            _check_parts(self.backbone, images.shape[-2], images.shape[-1])
        run: Any = getattr(self.backbone, "forward_features", self.backbone)
        run(images)
        return [tap.read(images) for tap in self.taps]  # type: ignore[operator]

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay: those of the backbone."""
        names: Any = getattr(self.backbone, "no_weight_decay", None)
        return {f"backbone.{name}" for name in names()} if callable(names) else set()

    def _freeze_unused(self, size: tuple[int, int]) -> None:
        parameters = list(self.backbone.parameters())
        with preserve_state(self), torch.enable_grad():
            total = torch.stack([feature.sum() for feature in self.maps(blank_images(self.backbone, size))]).sum()
            gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is None:
                parameter.requires_grad_(False)


def pair(size: Any, name: str = "size") -> tuple[int, int]:
    """(height, width) from a setting of that name: two numbers, or one for both."""
    sides = (size, size) if isinstance(size, int) else tuple(size) if isinstance(size, (tuple, list)) else ()
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise VitlabError(f"invalid {name}={size!r}; expected (height, width) in pixels")
    return sides[0], sides[1]


def _first_description(backbone: nn.Module, size: Any) -> Anatomy:
    """The description at the backbone's own size; if that is not known and 224 fails, at the given size."""
    try:
        return describe(backbone)
    except VitlabError:
        if size is None:
            raise
        return _described(backbone, pair(size))


def _multiple(anatomy: Anatomy) -> int:
    """The largest stride of the backbone: pixels per row of the coarsest grid that divides the image."""
    height = anatomy.input_size[0]
    grids = {seam.layout.grid[0] for block in anatomy.blocks for seam in (*block.seams, *block.taps)}
    return max((height // grid for grid in grids if grid and height % grid == 0), default=1)


def _check_parts(backbone: nn.Module, height: int, width: int) -> None:
    """Raise if a part was inserted for a grid of another shape, which may have as many tokens: 8x8 and 4x16.

    Parts check the number of tokens themselves.
    """
    for part in parts(backbone):
        layout = getattr(backbone.get_submodule(part.path), "layout", None)
        if layout is not None and abs(layout.grid[0] - layout.grid[1] * height / width) >= 1:
            raise VitlabError(
                f"{part.name} was inserted for a grid of {layout.grid[0]}x{layout.grid[1]} tokens, which "
                f"{height}x{width} images do not have; use images of one size, or a part without a grid"
            )


def _described(backbone: nn.Module, size: tuple[int, int]) -> Anatomy:
    try:
        return describe(backbone, size)
    except VitlabError as error:
        built = built_size(backbone)
        raise VitlabError(
            f"{type(backbone).__name__}, built for {built}, does not run on {size[0]}x{size[1]} images ({error}); "
            f"build the backbone with img_size={size}"
        ) from error


def _rename_parts(backbone: nn.Module) -> None:
    """Give the parts of a backbone the names that its blocks and modules have in the assembly."""
    for module in backbone.modules():
        part: Any = module
        if "vitlab_seam" in vars(module):
            part.vitlab_seam = replace(part.vitlab_seam, path=f"backbone.{part.vitlab_seam.path}")
            part.vitlab_block = f"backbone.{part.vitlab_block}"


def _block_names(anatomy: Anatomy, paths: set[str]) -> list[str]:
    return [block.name for block in anatomy.blocks if (place := block.tap("block.out")) and place.path in paths]
