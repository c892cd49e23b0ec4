"""Change the input size of a built backbone; position embeddings are interpolated."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from vitlab.adapters import built_size
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import call_text
from vitlab.fitted import FittedPart, parts
from vitlab.surgery import restore, retrofit


def set_input_size(backbone: nn.Module, size: tuple[int, int]) -> None:
    """Set the input size of a backbone in place; parts in it keep their weights.

    timm's models with `set_input_size` interpolate their position embeddings. Windows keep their size. Models without
    it, or with timm's `dynamic_img_size`, are unchanged: many run on any size, others must be built with `img_size=`.

    Args:
        backbone: a model, possibly with parts.
        size: (h, w).
    """
    change: Any = getattr(backbone, "set_input_size", None)
    if change is None or built_size(backbone) == size or getattr(backbone, "dynamic_img_size", False):
        return
    fitted = parts(backbone)
    unknown_settings = [part.name for part in fitted if part.settings is None]
    if unknown_settings:
        raise VitlabError(
            f"{unknown_settings[0]} was inserted as a module and cannot be rebuilt for {size[0]}x{size[1]} images; "
            "insert it after the input size is set"
        )
    trained = {part.path: backbone.get_submodule(part.path).state_dict() for part in fitted}
    restore(backbone)
    keeps = {"window_size": _window(backbone)} if "window_size" in inspect.signature(change).parameters else {}
    change(img_size=size, **keeps)
    for part in fitted:
        _insert_again(backbone, part, size)
    for path, state in trained.items():
        backbone.get_submodule(path).load_state_dict(state)


def _insert_again(backbone: nn.Module, part: FittedPart, size: tuple[int, int]) -> None:
    retrofit(backbone, call_text(part.name, part.settings or {}), at=part.seam, blocks=[part.block], input_size=size)


def _window(backbone: nn.Module) -> Any:
    """The size of the windows of the first block that has windows."""
    return next((module.window_size for module in backbone.modules() if hasattr(module, "window_size")), None)
