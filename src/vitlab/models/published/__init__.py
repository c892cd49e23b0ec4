"""Conversion of released weights of the papers to the keys of vitlab's models.

`from_published` takes the state dict of a released checkpoint, identifies its layout by a key that is unique to it, and
returns the same numbers with vitlab's keys and shapes. The conversions are pure functions; nothing is loaded,
downloaded or written.
"""

from __future__ import annotations

from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.models.published import alternet, fan, local_vit, pvt, rvt, small_images, t2t_vit
from vitlab.models.published.layout import Layout, Tensors

__all__ = ["LAYOUTS", "from_published", "layout_of"]

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


def from_published(name: str, tensors: Tensors) -> dict[str, Tensor]:
    """Convert the state dict of a released model to that of vitlab's model.

    Token-aware pooling is converted too: load the result into a model with the part, for example
    `vitlab/fan_base_hybrid | TokenAwarePooling`.

    Args:
        name: vitlab's model, for example `fan_base_hybrid`.
        tensors: the released weights by key; a prefix `module.` of all keys is removed.

    Returns:
        The weights by vitlab's keys. Their shapes are not checked here, but by `load_state_dict`.

    >>> import torch
    >>> released = {"tokens_to_token.project.weight": torch.zeros(512, 576)}
    >>> list(from_published("t2t_vit_t_24", released))
    ['patch_embed.proj.weight']
    """
    if tensors and all(key.startswith("module.") for key in tensors):
        tensors = {key.removeprefix("module."): tensor for key, tensor in tensors.items()}
    layout = layout_of(tensors)
    if layout is None:
        first = ", ".join(list(tensors)[:3]) or "none"
        known = ", ".join(each.family for each in LAYOUTS if each.models)
        raise VitlabError(
            f"the keys belong to no released model that can be converted (first keys: {first}); there are: {known}"
        )
    converted = layout.convert(tensors)  # raises for variants that are not supported
    if not name.startswith(layout.models):
        ours = ", ".join(f"{prefix}…" for prefix in layout.models)
        raise VitlabError(f"these are released weights of {layout.family}, but the model is {name}; expected {ours}")
    return converted
