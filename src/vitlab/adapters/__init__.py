"""What is known of other libraries' models: one file a kind of model, each of which describes and never acts.

An adapter is a module with

- `FAMILIES`: family name -> an example model (read with `ast`, so that listing them imports no torch);
- `CLASSES`: qualified names of the model classes that it knows;
- `family(model)`: which of its families a model is;
- `blocks(model, flow)`: the model's `Block`s, from the module tree and one observed forward;
- `ABSENT`: why a seam that others offer is missing here;
- `inputs(model, size)`, optional: what to feed the model, where that is not one image.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters.flow import Flow
from vitlab.adapters.wrappers import unwrap
from vitlab.core.anatomy import Anatomy, Block, Mixer
from vitlab.core.errors import VitlabError
from vitlab.core.plugins import adapter_modules

__all__ = ["describe"]

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def describe(model: nn.Module, input_size: int | tuple[int, int] | None = None) -> Anatomy:
    """Describe a model as data: blocks, token layouts and seams, in execution order.

    Runs one forward without gradients on two blank images, to know the grids.

    Args:
        model: a timm, torchvision or Hugging Face vision model, or one with a similar module tree; wrappers of
            `torch.compile` and DDP are looked through.
        input_size: height and width of the images, or one number for both; by default the model's own.

    Returns:
        The model's Anatomy.
    """
    if not isinstance(model, nn.Module):
        raise VitlabError(
            f"describe takes a torch.nn.Module, not {type(model).__name__}; vitlab.load makes one from text"
        )
    model = unwrap(model)
    adapter = _adapter(model)
    size = _size(model, input_size)
    try:
        flow = Flow(model, _inputs(adapter, model, size))
    except VitlabError:
        raise
    except Exception as error:  # whatever another library's forward raises, the user learns which input it was
        raise _does_not_run(model, size, error) from error
    blocks = tuple(_as_fitted(model, block) for block in adapter.blocks(model, flow))
    return Anatomy(adapter.family(model), blocks, size, adapter.ABSENT)


def _does_not_run(model: nn.Module, size: tuple[int, int], error: Exception) -> VitlabError:
    """The error for a model that raised on blank images: what it takes where that is known, else which size it was."""
    name, takes = type(model).__name__, getattr(model, "main_input_name", "pixel_values")
    config = getattr(model, "config", None)
    parameters = list(inspect.signature(model.forward).parameters.values())
    needs = [each.name for each in parameters[1:] if each.default is each.empty and each.kind in _NAMED]
    if "pixel" not in takes and hasattr(model, "main_input_name"):
        return VitlabError(
            f"{name} takes {takes}, not images, so that it cannot be described; choose a model of images"
        )
    if getattr(config, "num_frames", None) is not None or getattr(config, "tubelet_size", None) is not None:
        return VitlabError(f"{name} takes videos, not images, so that it cannot be described; choose a model of images")
    if needs:
        return VitlabError(
            f"{name} needs {', '.join(needs)} beside the images, which are not known here; "
            "write an adapter whose inputs(model, size) makes them"
        )
    reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    return VitlabError(
        f"{name} does not run on {size[0]}x{size[1]} images ({reason}); "
        "give the size that it was built for as input_size=(height, width)"
    )


def _as_fitted(model: nn.Module, block: Block) -> Block:
    """A block whose attention was replaced by a part that has no token-token map says so."""
    why = getattr(model.get_submodule(block.mixer.path), "why_no_map", None)
    if why is None:
        return block
    return replace(block, mixer=Mixer(block.mixer.kind, block.mixer.path, why_no_map=str(why)))


def _adapter(model: nn.Module) -> ModuleType:
    """The adapter that knows the nearest class of the model, or the generic reading of the module tree."""
    for kind in type(model).__mro__:
        adapter = _known().get(f"{kind.__module__}.{kind.__qualname__}")
        if adapter is not None:
            return adapter
    return importlib.import_module("vitlab.adapters.generic")


@cache
def _known() -> dict[str, ModuleType]:
    """The adapter of each class that one knows; of two, the first."""
    adapters = [importlib.import_module(name) for name in adapter_modules()]
    return {name: adapter for adapter in reversed(adapters) for name in adapter.CLASSES}


def _inputs(adapter: ModuleType, model: nn.Module, size: tuple[int, int]) -> Mapping[str, Tensor]:
    if hasattr(adapter, "inputs"):
        result: Mapping[str, Tensor] = adapter.inputs(model, size)
        return result
    return {"": blank_images(model, size)}


def blank_images(model: nn.Module, size: tuple[int, int]) -> Tensor:
    """Two blank images on the model's device, in its precision, with as many channels as it takes."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    channels = getattr(model, "in_chans", None) or (first.in_channels if first is not None else 3)
    return torch.zeros(2, channels, *size, device=weight.device, dtype=weight.dtype)


def built_size(model: nn.Module) -> tuple[int, int] | None:
    """Height and width of the images that a model was built for; None where it takes any size or does not say."""
    config = getattr(model, "config", None)
    candidates: list[Any] = [
        getattr(getattr(model, "patch_embed", None), "img_size", None),
        getattr(model, "img_size", None),
        getattr(model, "image_size", None),
        getattr(config, "image_size", None),
        getattr(getattr(config, "vision_config", None), "image_size", None),
    ]
    value = next((candidate for candidate in candidates if candidate is not None), None)
    return None if value is None else _pair(value)


def _size(model: nn.Module, given: int | tuple[int, int] | None) -> tuple[int, int]:
    """The given size, or what the model says of itself, or 224."""
    if given is not None:
        return _pair(given)
    return built_size(model) or _pair((getattr(model, "pretrained_cfg", None) or {}).get("input_size") or 224)


def _pair(value: Any) -> tuple[int, int]:
    h, w = (value, value) if isinstance(value, int) else tuple(value)[-2:]
    return int(h), int(w)
