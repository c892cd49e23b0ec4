"""The base class of segmentation models: padding of the images, and logits at the size of the images.

Shape legend: B batch, K classes, H W pixels, h w grid.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.assemblies.assembly import Assembly
from vitlab.core.errors import VitlabError


def enlarge(x: Tensor, size: Sequence[int]) -> Tensor:
    """Bilinear interpolation of a map (B, C, h, w) to a size."""
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    return F.interpolate(x, tuple(size), mode="bilinear", align_corners=False)


class Segmenter(Assembly):
    """An assembly that returns logits (B, K, H, W) for images (B, 3, H, W).

    A subclass defines `scores`. In training mode a model with an auxiliary head returns `{"out": …, "aux": …}`, as
    torchvision's segmentation models do.

    Args:
        backbone, size, taps: see `Assembly`.
        classes: K.
    """

    def __init__(
        self, backbone: nn.Module, classes: int, size: tuple[int, int] | None, taps: Sequence[int] | None
    ) -> None:
        if not isinstance(classes, int) or classes < 2:
            raise VitlabError(f"invalid classes={classes!r}; expected 2 or more")
        super().__init__(backbone, size, taps)
        self.num_classes = classes

    def scores(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (B, K, h, w) of padded images at any size, and those of an auxiliary head in training mode."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor | dict[str, Tensor]:
        """Images (B, 3, H, W) -> logits (B, K, H, W)."""
        padded = self.padded(images)
        h, w = images.shape[-2:]
        logits, auxiliary = (
            None if each is None else enlarge(each, padded.shape[-2:])[..., :h, :w] for each in self.scores(padded)
        )
        assert logits is not None
        return logits if auxiliary is None else {"out": logits, "aux": auxiliary}
