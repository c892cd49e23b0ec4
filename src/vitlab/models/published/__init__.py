"""Conversion of released weights of the papers to the keys of vitlab's models.

`layout_of` identifies the layout of a released state dict by a key that is unique to it; `Layout.convert` returns the
same numbers with vitlab's keys and shapes. The conversions are pure functions; nothing is loaded, downloaded or
written. `checkpoints.from_released` checks that the result fits the model.
"""

from __future__ import annotations

from vitlab.models.published import alternet, fan, local_vit, pvt, rvt, small_images, t2t_vit
from vitlab.models.published.layout import Layout, Tensors

__all__ = ["LAYOUTS", "layout_of"]

LAYOUTS: tuple[Layout, ...] = (
    fan.LAYOUT,
    rvt.LAYOUT,
    alternet.LAYOUT,
    alternet.RESNET,
    pvt.LAYOUT,
    t2t_vit.LAYOUT,
    local_vit.LAYOUT,
    small_images.PIT,
    small_images.SWIN,
    *small_images.OWN_CODE,
)


def layout_of(tensors: Tensors) -> Layout | None:
    """Returns the layout of released weights, or None if the keys are those of no released model.

    >>> import torch
    >>> layout_of({"pos_embed1": torch.zeros(1)}).family
    'PVT'
    """
    return next((each for each in LAYOUTS if each.mark in tensors), None)
