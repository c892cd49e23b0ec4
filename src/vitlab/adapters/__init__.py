"""Adapters: one module per kind of model, which describes its blocks, token layouts and seams without changing it.

An adapter is a module with

- `FAMILIES`: family name -> an example model (read with `ast`, so that listing them imports no torch);
- `CLASSES`: qualified names of the model classes that it supports;
- `family(model)`: the family of a model;
- `blocks(model, flow)`: the model's `Block`s, from the module tree and one recorded forward;
- `ABSENT`: seam name -> reason why these models do not have it;
- `inputs(model, size)`, optional: the inputs of the model, if they are not one image tensor;
- `token_kinds(model)`, optional: for models of text and images, the path of the module that joins their tokens, and a
  module-level function that reads the kind of each token from a call of this module (`modules/token_kinds.py`).
- `stem(model, flow)`, optional: the outputs of convolutional stages before the first block.

An assembly is described by the adapter of its backbone (`assembled.py`).
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from numbers import Integral
from types import ModuleType
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from vitlab.adapters.assembled import in_assembly, is_assembly
from vitlab.adapters.failures import adapter_error, place_of
from vitlab.adapters.flow import Flow
from vitlab.adapters.large_images import without_values
from vitlab.adapters.wrappers import unwrap
from vitlab.core.anatomy import Anatomy, Block, Mixer
from vitlab.core.annotations import shown
from vitlab.core.bounds import Length
from vitlab.core.errors import VitlabError
from vitlab.core.extensions import registrations, resolve_all
from vitlab.core.machine_memory import is_allocation_failure
from vitlab.core.plugins import adapter_modules
from vitlab.core.settings import check_value
from vitlab.modules.token_kinds import Reader

__all__ = ["describe"]

_SIZE_WORDS = re.compile(
    r"size|height|width|shape|dim|divisible|multiple|match|small|large|token|length", re.IGNORECASE
)
_OTHER_INPUTS = "if it needs other inputs than images, write an adapter whose inputs(model, size) returns them"
LARGEST_SIDE = 8192  # pixels
_CHECK = "check this module; VITLAB_DEBUG=1 shows the traceback"
_SIZE_ERRORS = (RuntimeError, ValueError, AssertionError, IndexError)
_INPUT_ERRORS = (TypeError, AttributeError, KeyError)  # of an input that is missing
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def describe(model: nn.Module, input_size: int | tuple[int, int] | None = None) -> Anatomy:
    """Describe a model as data: blocks, token layouts and seams, in execution order.

    Runs one forward without gradients on two blank images, to read the grids; for large images that of a copy without
    data (`large_images`).

    Args:
        model: a timm, torchvision or Hugging Face vision model, or one with a similar module tree; wrappers of
            `torch.compile` and DDP are removed first.
        input_size: height and width of the images, or one number for both. Default: the model's input size.

    Returns:
        The model's Anatomy.
    """
    model = unwrap(model)
    size = _size(model, input_size)
    if is_assembly(model):
        assembly: Any = model
        return in_assembly(assembly, describe(assembly.backbone, assembly.backbone_size(size)), size)
    adapter = _adapter(model)
    found = without_values(model, adapter, size, lambda copy: _from_shapes(model, adapter, copy, size))
    if found is not None:
        return found
    try:
        flow = Flow(model, inputs_of(model, size))
    except VitlabError:
        raise
    except Exception as error:  # any error of another library's forward is reported with the input size
        raise _forward_error(model, size, error) from error
    try:
        return _anatomy(model, adapter, flow, size)
    except VitlabError:
        raise
    except Exception as error:  # of an adapter for other models, whose modules have other attributes
        raise adapter_error(model, error) from error


def _anatomy(model: nn.Module, adapter: ModuleType, flow: Flow, size: tuple[int, int]) -> Anatomy:
    blocks = tuple(_as_fitted(model, block) for block in adapter.blocks(model, flow))
    stem = adapter.stem(model, flow) if hasattr(adapter, "stem") else ()
    return Anatomy(adapter.family(model), blocks, size, adapter.ABSENT, stem)


def _from_shapes(model: nn.Module, adapter: ModuleType, copy: nn.Module, size: tuple[int, int]) -> Anatomy:
    """The anatomy from a forward of a copy without values; an error if the adapter reads the inputs."""
    flow = Flow(copy, inputs_of(copy, size))
    del flow.inputs
    return _anatomy(model, adapter, flow, size)


def token_kinds(model: nn.Module) -> tuple[str, Reader] | None:
    """The module that joins text and image tokens, and the function that reads their kinds from a call of it.

    None for a model that has image tokens only.
    """
    adapter = _adapter(unwrap(model))
    found: tuple[str, Reader] | None = adapter.token_kinds(unwrap(model)) if hasattr(adapter, "token_kinds") else None
    return found


def _forward_error(model: nn.Module, size: tuple[int, int], error: Exception) -> VitlabError:
    """The error for a model that failed on blank images: its expected input if known, else the image size."""
    name, config = type(model).__name__, getattr(model, "config", None)
    reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    if "meta" in reason and next(model.parameters(), torch.empty(0)).is_meta:
        return VitlabError(f"{name} does not run on the meta device ({reason}); build it on a CPU or GPU")
    if is_allocation_failure(error):
        return VitlabError(f"{name} on {size[0]}x{size[1]} images does not fit into memory; give a smaller image size")
    takes, needs = _images_and_others(model)
    if not takes:
        return VitlabError(f"{name} takes {', '.join(needs)}, not images, and cannot be described; use an image model")
    if getattr(config, "num_frames", None) is not None or getattr(config, "tubelet_size", None) is not None:
        return VitlabError(f"{name} takes videos, not images, and cannot be described; use an image model")
    if needs:
        return VitlabError(
            f"{name} needs {', '.join(needs)} in addition to images; "
            "write an adapter whose inputs(model, size) returns them"
        )
    # Another size helps only if the size is not the model's own, and if the reason concerns sizes.
    of_size = isinstance(error, _SIZE_ERRORS) and _SIZE_WORDS.search(reason) is not None
    place = place_of(error, model)
    if of_size and built_size(model) != size:
        advice = "give its input size as input_size=(height, width)"
    else:
        advice = _CHECK if place and not of_size and not isinstance(error, _INPUT_ERRORS) else _OTHER_INPUTS
    where = f"in {place}: " if place else ""
    kind = "" if isinstance(error, _SIZE_ERRORS) or reason == type(error).__name__ else f"{type(error).__name__}: "
    return VitlabError(f"{name} does not run on {size[0]}x{size[1]} images ({where}{kind}{reason}); {advice}")


def _images_and_others(model: nn.Module) -> tuple[bool, list[str]]:
    """Whether a model takes images, and the names of all other inputs that it needs, from the signature of `forward`.

    A parameter such as `pixel_values` is images. The attribute `main_input_name` of Hugging Face's models, whose
    default is that of language models, counts only if the signature has this parameter. Without parameters of either
    kind, as in models of other libraries, the first parameter is images.
    """
    named = [each for each in inspect.signature(model.forward).parameters.values() if each.kind in _NAMED]
    images = [each.name for each in named if "pixel_values" in each.name]
    main = getattr(model, "main_input_name", ())
    others = [each for each in ([main] if isinstance(main, str) else main) if each in {each.name for each in named}]
    others = [each for each in others if "pixel" not in each]
    takes = bool(images) or not others
    first = images[:1] or [each.name for each in named[:1]]
    required = [each.name for each in named if each.default is each.empty and each.name not in (*images, *first)]
    return takes, list(dict.fromkeys([*others, *required]))


def _as_fitted(model: nn.Module, block: Block) -> Block:
    """The block, without a map if its attention was replaced by a part that has none."""
    why = getattr(model.get_submodule(block.mixer.path), "why_no_map", None)
    if why is None:
        return block
    return replace(block, mixer=Mixer(block.mixer.kind, block.mixer.path, why_no_map=str(why)))


def _adapter(model: nn.Module) -> ModuleType:
    """The adapter of the first class in the model's method resolution order, else the generic adapter."""
    known = _adapters_by_class(tuple(adapter_modules()), registrations())
    for kind in type(model).__mro__:
        adapter = known.get(f"{kind.__module__}.{kind.__qualname__}")
        if adapter is not None:
            return adapter
    return importlib.import_module("vitlab.adapters.generic")


@cache
def _adapters_by_class(modules: tuple[str, ...], registered: int) -> dict[str, ModuleType]:
    """The adapter of each supported class; the first if there are two. `registered` counts registrations in Python."""
    adapters = resolve_all(modules).values()
    return {name: adapter for adapter in reversed(adapters) for name in adapter.CLASSES}


def inputs_of(model: nn.Module, input_size: int | tuple[int, int] | None = None) -> Mapping[str, Tensor]:
    """Two blank images, and all other inputs that the model needs, by name; the name of one positional image is ""."""
    adapter, size = _adapter(model), _size(model, input_size)
    if hasattr(adapter, "inputs"):
        result: Mapping[str, Tensor] = adapter.inputs(model, size)
        return result
    return {"": blank_images(model, size)}


def check_takes_images(model: nn.Module, input_size: int | tuple[int, int] | None, what: str) -> None:
    """Raise an error if a model needs more than images (B, C, h, w): a text (CLIP), or a mask of patches (SigLIP 2).

    Args:
        model: the model, without wrappers.
        input_size: size of the images.
        what: what needs images alone, for the error message.
    """
    names = list(inputs_of(model, input_size))
    if len(names) > 1:
        raise VitlabError(
            f"{type(model).__name__} takes {', '.join(names)}; {what} needs a model that takes images alone"
        )


def blank_images(model: nn.Module, size: tuple[int, int]) -> Tensor:
    """Two blank images on the model's device, in its precision, with the model's number of input channels."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    channels = getattr(model, "in_chans", None) or (first.in_channels if first is not None else 3)
    return torch.zeros(2, channels, *size, device=weight.device, dtype=weight.dtype)


def built_size(model: nn.Module) -> tuple[int, int] | None:
    """Height and width of the images that a model was built for; None if any size is valid or it is not known."""
    config = getattr(model, "config", None)
    candidates: list[Any] = [
        getattr(getattr(model, "patch_embed", None), "img_size", None),
        getattr(model, "img_size", None),
        getattr(model, "image_size", None),
        getattr(config, "image_size", None),
        getattr(getattr(config, "vision_config", None), "image_size", None),
        _smallest_scaled(config),
    ]
    value = next((candidate for candidate in candidates if candidate is not None), None)
    return None if value is None else _pair(value)


def _smallest_scaled(config: Any) -> int | None:
    """The smallest image of DepthPro, whose smallest scaled copy is one patch."""
    ratios, patch = (getattr(config, name, None) for name in ("scaled_images_ratios", "patch_size"))
    return int(patch / min(ratios)) if ratios and isinstance(patch, int) else None


def _size(model: nn.Module, given: int | tuple[int, int] | None) -> tuple[int, int]:
    """The given size, else the model's input size, else 224."""
    if given is not None:
        check_value("", "input_size", given, int | Annotated[Sequence[int], Length(2, 3)])
        h, w = _pair(given)
        if not (1 <= h <= LARGEST_SIDE and 1 <= w <= LARGEST_SIDE):
            raise VitlabError(
                f"image size {shown(h)}x{shown(w)}: expected a height and a width from 1 to {LARGEST_SIDE:,}"
            )
        return h, w
    return built_size(model) or _pair((getattr(model, "pretrained_cfg", None) or {}).get("input_size") or 224)


def _pair(value: Any) -> tuple[int, int]:
    h, w = (value, value) if isinstance(value, Integral) else tuple(value)[-2:]
    return int(h), int(w)
