"""Build a model from a model expression: from timm, torchvision, Hugging Face, vitlab or a file.

Weights are random unless the expression requests others. User files are never unpickled.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitlab.adapters.wrappers import unwrap
from vitlab.checkpoints import from_released, load_weights, read_weights
from vitlab.core import plugins
from vitlab.core.bounds import Seed
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import ModelExpression, parse_model
from vitlab.core.settings import check_settings, check_value
from vitlab.core.store import write_tensors
from vitlab.identity import set_origin
from vitlab.markers import parts_in
from vitlab.models._settings import architecture, check_size
from vitlab.models._timm_settings import check_own_settings
from vitlab.models._vilt import build_vilt, check_vilt, pretrained_body
from vitlab.models._vilt import weights_file as vilt_weights_file
from vitlab.preprocessing import declare
from vitlab.surgery import changes_reported, retrofit
from vitlab.surgery.building import check_part
from vitlab.zoo.expressions import VILT, builder_expression, builder_of, is_assembly, recipe_of, weights_file
from vitlab.zoo.libraries import build_hugging_face, build_or_raise, build_timm, build_torchvision, unknown_model
from vitlab.zoo.names import model_names, registered_by, settings_of_model

__all__ = ["builder_of", "load", "model_names", "recipe_of", "registered_by", "save", "settings_of_model"]


def load(expression: str, *, seed: int | None = None) -> nn.Module:
    """Build the model that an expression describes, parts included.

    Args:
        expression: for example `"timm/deit_tiny_patch16_224(pretrained=True) | ContextBroadcast(blocks='upper')"`.
        seed: seed of the random initialisation; the global random state is then unchanged.

    Returns:
        The model as its library builds it (in training mode, like timm's `create_model`). The origin of its weights is
        stored on it (`vitlab.identity`).
    """
    parsed = parse_model(expression)
    check_value("load", "seed", seed, Seed | None)
    for part in parsed.parts:
        check_part(part)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        model, origin = _build(parsed)
    set_origin(model, origin, expression.strip(), builder_of(expression))
    return model


def save(model: nn.Module, expression: str, path: str | Path) -> None:
    """Write a model's weights and the expression that builds it to a file, which `file/PATH` loads."""
    parse_model(expression)
    check_value("save", "path", path, str | Path)
    write_tensors(path, unwrap(model).state_dict(), {"model": expression})


def _build(parsed: ModelExpression) -> tuple[nn.Module, str]:
    """The model and the origin of its weights."""
    settings = dict(parsed.settings)
    if parsed.source == "file":
        path = None
        model, origin = _from_file(parsed.name, settings)
    else:
        path, entry = settings.pop("weights", None), settings.pop("weights_entry", None)
        for key, value in (("weights", path), ("weights_entry", entry)):
            check_value(f"{parsed.source}/{parsed.name}", key, value, str | None)
        if path == "" or (path is None and entry is not None):
            raise VitlabError(f"{parsed} names no file of weights; write weights='FILE'")
        if path is not None and settings.get("pretrained"):
            raise VitlabError(f"{parsed} has both weights= and pretrained=True; expected one of them")
        builders = {"timm": build_timm, "torchvision": build_torchvision, "hf": build_hugging_face, "vitlab": _vitlab}
        model, origin = builders[parsed.source](parsed.name, settings)
    if path is not None:
        return model, _load_file_weights(model, parsed, path, entry)
    _fit_parts(model, parsed, origin)
    return model, origin


def _vitlab(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    """A model of vitlab, and the origin of its weights."""
    if ("vitlab", name) == VILT:
        check_vilt(settings)
        check_size("vitlab/vilt", settings, lambda **sized: build_vilt(sized))
        return build_or_raise("vitlab/vilt", lambda: build_vilt(settings)), "random"
    if name in plugins.assemblies():
        return _assembly(name, settings)
    names = model_names("vitlab")
    if name not in names:
        raise unknown_model("vitlab", name, [*names, *plugins.assemblies(), "vilt"])
    check_settings(f"vitlab/{name}", architecture, settings, 0)
    check_own_settings(name, settings)
    return build_timm(name, settings, "vitlab")


def _assembly(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    """An assembly around the backbone that its setting `backbone` describes."""
    text = settings.pop("backbone", None)
    if not isinstance(text, str):
        raise VitlabError(
            f"vitlab/{name} needs a backbone; write vitlab/{name}(backbone='timm/vit_tiny_patch16_224', …)"
        )
    build = getattr(importlib.import_module(plugins.assemblies()[name]), name)
    check_settings(f"vitlab/{name}", build, settings, 1)
    if is_assembly(parse_model(builder_of(text))):
        raise VitlabError(f"the backbone {text!r} of vitlab/{name} is an assembly itself; expected a backbone")
    backbone, origin = _build(parse_model(text))
    random = origin == "random" or origin.endswith(" (random head)")
    model: nn.Module = build_or_raise(f"vitlab/{name}", lambda: build(backbone, **settings))
    return model, origin if random else f"{origin} (random head)"


def _from_file(path: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    """The model of a vitlab file and the origin of its weights; settings replace those of the expression in the file.

    With settings, the classifier may have another number of classes, and position embeddings another grid.
    """
    tensors, metadata = read_weights(weights_file(path))
    model: Any = _build(parse_model(builder_expression(path, metadata, settings)))[0]
    random_head = load_weights(model, tensors, path, new_head=bool(settings))
    _declare_as_trained(model, metadata, path, random_head=random_head)
    return model, f"file: {path}" + (" (random head)" if random_head else "")


def _load_file_weights(model: nn.Module, parsed: ModelExpression, path: str, entry: str | None) -> str:
    """Load a file's weights and fit the parts, which are fitted first if the file has them; returns the origin."""
    is_vilt = (parsed.source, parsed.name) == VILT
    tensors, metadata = read_weights(vilt_weights_file(path) if is_vilt else weights_file(path), entry)
    tensors, layout = (tensors, "") if is_vilt else from_released(tensors, model, parsed, path)
    with_parts = bool(parts_in(tensors))
    if with_parts:
        _fit_parts(model, parsed)
    tensors, no_head = pretrained_body(tensors, model.state_dict()) if is_vilt else (tensors, False)
    random_head = load_weights(model, tensors, path, new_head=True) or no_head
    released = f" (published layout {layout})" if layout else ""
    origin = f"file: {path}{released}" + (" (random head)" if random_head else "")
    if not with_parts:
        _fit_parts(model, parsed, origin)
    _declare_as_trained(model, metadata, path, random_head=random_head)
    return origin


def _fit_parts(model: nn.Module, parsed: ModelExpression, origin: str = "random") -> None:
    """Insert the parts of an expression; warns if they change the outputs of trained weights."""
    names = list(dict.fromkeys(part.name for part in parsed.parts))
    with changes_reported(model, "" if origin == "random" else origin, names):
        for part in parsed.parts:
            retrofit(model, str(part))


def _declare_as_trained(model: nn.Module, metadata: dict[str, Any], path: str, *, random_head: bool = False) -> None:
    """Declare the preprocessing stored in a file of vitlab, and its classes unless the head is new."""
    fields = dict(metadata.get("preprocessing") or {})
    if not fields and "mean" in metadata and "std" in metadata:  # files of older versions store no other fields
        fields = {"mean": metadata["mean"], "std": metadata["std"]}
    if fields:
        classes = () if random_head else tuple(metadata.get("classes", ()))
        declare(model, **{**fields, "classes": classes, "source": f"training run {path}"})
