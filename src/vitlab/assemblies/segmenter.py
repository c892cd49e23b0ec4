"""The base class of segmentation models: padding of the images, and logits at the size of the images.

Shape legend: B batch, K classes, H W pixels, h w grid.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.assemblies.assembly import Assembly, pair
from vitlab.core.errors import VitlabError
from vitlab.data.segmentation_augment import base_scale


def enlarge(x: Tensor, size: Sequence[int]) -> Tensor:
    """Bilinear interpolation of a map (B, C, h, w) to a size."""
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    return F.interpolate(x, tuple(size), mode="bilinear", align_corners=False)


class Segmenter(Assembly):
    """An assembly that returns logits (B, K, H, W) for images (B, 3, H, W).

    A subclass defines `scores`. In training mode a model with an auxiliary head returns `{"out": …, "aux": …}`, as
    torchvision's segmentation models do. In evaluation mode images may have any size: they are resized to the size of
    the model, or segmented in overlapping windows of that size if there is a stride.

    Args:
        backbone, size, taps: see `Assembly`.
        classes: K.
        stride: distance of the windows, in pixels, at most their size; None to resize images.
        base_size: limits of the shorter and the longer side; images are resized to the largest size within them before
            they are segmented in windows; None for their own size.
    """

    def __init__(
        self,
        backbone: nn.Module,
        classes: int,
        size: tuple[int, int] | None,
        taps: Sequence[int] | None,
        stride: tuple[int, int] | None = None,
        base_size: tuple[int, int] | None = None,
    ) -> None:
        if not isinstance(classes, int) or classes < 2:
            raise VitlabError(f"invalid classes={classes!r}; expected 2 or more")
        super().__init__(backbone, size, taps)
        self.num_classes = classes
        self.stride = None if stride is None else pair(stride, "stride")
        self.base_size = None if base_size is None else pair(base_size, "base_size")
        if self.stride is not None and (self.stride[0] > self.img_size[0] or self.stride[1] > self.img_size[1]):
            raise VitlabError(
                f"invalid stride={self.stride} for windows of {self.img_size[0]}x{self.img_size[1]} pixels: pixels "
                "between two windows would have no logits; expected at most the size of a window"
            )

    def scores(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (B, K, h, w) of padded images at any size, and those of an auxiliary head in training mode."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor | dict[str, Tensor]:
        """Images (B, 3, H, W) -> logits (B, K, H, W)."""
        size = (images.shape[-2], images.shape[-1])
        if self.training or (size == self.img_size and self.base_size is None):
            logits, auxiliary = self._logits(images)
            return logits if auxiliary is None else {"out": logits, "aux": auxiliary}
        if self.stride is None:
            return enlarge(self._logits(enlarge(images, self.img_size))[0], size)
        return self._in_windows(images, self.stride)

    def _logits(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits at the size of the images, which are padded for the backbone."""
        padded = self.padded(images)
        h, w = images.shape[-2:]
        logits, auxiliary = self.scores(padded)
        full = enlarge(logits, padded.shape[-2:])[..., :h, :w]
        return full, None if auxiliary is None else enlarge(auxiliary, padded.shape[-2:])[..., :h, :w]

    def _in_windows(self, images: Tensor, stride: tuple[int, int]) -> Tensor:
        """The mean logits over overlapping windows; an image that does not cover a window is enlarged first."""
        size = (images.shape[-2], images.shape[-1])
        base = base_scale(size, self.base_size)
        wanted = (max(1, round(size[0] * base)), max(1, round(size[1] * base)))
        factor = max(1.0, self.img_size[0] / wanted[0], self.img_size[1] / wanted[1])
        sides = zip(wanted, self.img_size, strict=True)
        large = enlarge(images, [max(window, round(side * factor)) for side, window in sides] if factor > 1 else wanted)
        total = images.new_zeros(len(images), self.num_classes, *large.shape[-2:])
        count = images.new_zeros(1, 1, *large.shape[-2:])
        for top in window_starts(large.shape[-2], self.img_size[0], stride[0]):
            for left in window_starts(large.shape[-1], self.img_size[1], stride[1]):
                window = (..., slice(top, top + self.img_size[0]), slice(left, left + self.img_size[1]))
                total[window] += self._logits(large[window])[0]
                count[window] += 1
        return enlarge(total / count, size)


def window_starts(length: int, window: int, stride: int) -> list[int]:
    """The first positions of windows that cover an axis; the last window ends at its end.

    >>> window_starts(10, 4, 3), window_starts(11, 4, 3), window_starts(4, 4, 3)
    ([0, 3, 6], [0, 3, 6, 7], [0])
    """
    return [*range(0, length - window, stride), length - window]
