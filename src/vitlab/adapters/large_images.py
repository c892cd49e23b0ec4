"""Describe a model for large images by a copy of it on the meta device, which computes shapes but no values.

A real forward on two blank images of 2048 x 2048 pixels takes the time and memory of a measurement of one. On the meta
device a forward takes the same time for all sizes, about that of a real one on a CPU at 224 x 224.

The copy has the modules and hooks of the model, and parameters and buffers without data. The model itself does not run,
so that nothing that a forward stores reaches it. Whatever fails is described by a real forward instead: an adapter that
reads values, an operator without a shape function, a model that cannot be copied. Only classes of timm,
torchvision, transformers and vitlab are described in this way: the tests compare both ways for each family.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy

PIXELS = 1 << 20  # images with at least this many are large
_LIBRARIES = ("timm", "torchvision", "transformers", "vitlab")


def without_values(
    model: nn.Module, adapter: ModuleType, size: tuple[int, int], anatomy: Callable[[nn.Module], Anatomy]
) -> Anatomy | None:
    """The anatomy for large images, from a copy of the model on the meta device; None if a real forward is needed.

    Args:
        model: the model.
        adapter: its adapter.
        size: height and width of the images.
        anatomy: returns the anatomy of the model from a forward of the given copy of it.
    """
    library = type(model).__module__.partition(".")[0] in _LIBRARIES
    tested = library and adapter.__name__.startswith("vitlab.adapters.") and adapter.CLASSES  # generic has none
    if size[0] * size[1] < PIXELS or not tested or not _plain(model):
        return None
    try:
        return anatomy(_on_meta(model))
    except Exception:  # of any kind: the real forward decides whether it is an error
        return None


def _plain(model: nn.Module) -> bool:
    """Whether all parameters and buffers are tensors of the usual classes; those of sharded models are not."""
    parameters = all(type(each) is nn.Parameter for each in model.parameters())
    return parameters and all(type(each) is Tensor for each in model.buffers())


def _on_meta(model: nn.Module) -> nn.Module:
    """A copy of a model whose parameters and buffers have shapes but no data."""
    empty: dict[int, object] = {
        id(each): nn.Parameter(torch.empty_like(each, device="meta"), requires_grad=False)
        for each in model.parameters()
    }
    empty |= {id(each): torch.empty_like(each, device="meta") for each in model.buffers()}
    return copy.deepcopy(model, empty)
