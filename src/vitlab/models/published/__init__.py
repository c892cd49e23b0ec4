"""Weights of the papers' released models, renamed for ours.

`from_published` takes a dictionary from key to tensor as a released checkpoint has it, recognises whose layout it is by
a key that only this layout has, and returns the same numbers under our keys, packed as our layers are. The conversions
are pure functions; nothing is loaded, downloaded or written here.
"""

from __future__ import annotations

from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.models.published import alternet, fan, local_vit, pvt, rvt, small_images, t2t_vit
from vitlab.models.published.layout import Layout, Tensors

__all__ = ["LAYOUTS", "from_published"]

LAYOUTS: tuple[Layout, ...] = (
    fan.LAYOUT,
    rvt.LAYOUT,
    alternet.LAYOUT,
    pvt.LAYOUT,
    t2t_vit.LAYOUT,
    local_vit.LAYOUT,
    small_images.PIT,
    small_images.SWIN,
)


def from_published(name: str, tensors: Tensors) -> dict[str, Tensor]:
    """The state dict of one of our models from that of the released model.

    Token-aware pooling is taken along: load the result into a model that has the part, for example
    `vitlab/fan_base_hybrid | TokenAwarePooling`.

    Args:
        name: our model, for example `fan_base_hybrid`.
        tensors: the released weights by key; a prefix `module.` on all keys is dropped.

    Returns:
        The weights by our keys. Whether they fit a model's settings is for `load_state_dict` to say.

    >>> import torch
    >>> released = {"tokens_to_token.project.weight": torch.zeros(512, 576)}
    >>> list(from_published("t2t_vit_t_24", released))
    ['patch_embed.proj.weight']
    """
    if tensors and all(key.startswith("module.") for key in tensors):
        tensors = {key.removeprefix("module."): tensor for key, tensor in tensors.items()}
    found = next((layout for layout in LAYOUTS if layout.mark in tensors), None)
    if found is None:
        first = ", ".join(list(tensors)[:3]) or "none"
        known = ", ".join(layout.family for layout in LAYOUTS)
        raise VitlabError(
            f"these keys are of no released model that can be converted (first keys: {first}); there are: {known}"
        )
    if not name.startswith(found.models):
        ours = ", ".join(f"{prefix}…" for prefix in found.models)
        raise VitlabError(f"these are released weights of {found.family}, and the model is {name}; expected {ours}")
    return found.convert(tensors)
