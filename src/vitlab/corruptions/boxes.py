"""Boxes of pixels along an axis, with PIL's rounding: the centres of many pixels are on the edge of a box.

Shape legend: B images, C channels, w columns, n pixels along the axis, k boxes, T pixels of the largest box.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Boxes:
    """The pixels of each box.

    Args:
        members: (T, k) the first, second, … pixel of each box; arbitrary beyond the last pixel of a box.
        inside: (T, k, 1) 1.0 for pixels in the box, else 0.0.
        full: (T,) whether all pixels of a row are inside.
        counts: (k, 1) number of pixels of each box.
        owners: (n,) the box of each pixel for upsampling.
    """

    members: Tensor
    inside: Tensor
    full: tuple[bool, ...]
    counts: Tensor
    owners: Tensor

    def means(self, images: Tensor) -> Tensor:
        """Average rows (B, C, n, w) of uint8 or float32 to (B, C, k, w) float32."""
        total = images.index_select(2, self.members[0]).float()
        for members, inside, full in zip(self.members[1:], self.inside[1:], self.full[1:], strict=True):
            part = images.index_select(2, members).float()  # convert only the selected rows
            total = total.add_(part) if full else total.addcmul_(part, inside)
        return total.div_(self.counts)

    def repeat(self, images: Tensor) -> Tensor:
        """Repeat rows (B, C, k, w) to (B, C, n, w)."""
        return images.index_select(2, self.owners)


@lru_cache(maxsize=32)
def boxes(size: int, count: int, device: str) -> Boxes:
    """Returns `count` boxes of equal length that cover `size` pixels.

    >>> two = boxes(6, 2, "cpu")
    >>> two.counts.flatten().tolist(), two.owners.tolist()
    ([3.0, 3.0], [0, 0, 0, 1, 1, 1])
    """
    scale = size / count
    centres = (np.arange(count) + 0.5) * scale
    starts = (centres - 0.5 * scale + 0.5).astype(np.int64)
    ends = (centres + 0.5 * scale + 0.5).astype(np.int64).clip(max=size)
    members = starts + np.arange((ends - starts).max())[:, None]
    place = (members - centres + 0.5) * (1 / scale)
    inside = (members < ends) & (place > -0.5) & (place <= 0.5)
    steps = np.full(size, count / size)
    steps[0] /= 2
    owners = steps.cumsum().astype(np.int64).clip(max=count - 1)  # PIL also accumulates
    arrays = (
        members.clip(max=size - 1),
        inside[..., None].astype(np.float32),
        inside.sum(0)[:, None].astype(np.float32),
        owners,
    )
    on_device = [torch.from_numpy(array).to(device) for array in arrays]
    return Boxes(on_device[0], on_device[1], tuple(bool(row.all()) for row in inside), on_device[2], on_device[3])
