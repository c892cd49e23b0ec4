"""From a model expression to a model: timm's, torchvision's, Hugging Face's, ours, or one from a file.

Weights are random unless the expression asks for others; nothing that a user hands over is unpickled.
"""

from __future__ import annotations

import importlib
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitlab.checkpoints import fill, read_weights
from vitlab.core import plugins
from vitlab.core.downloads import downloading_from
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import ModelExpression, parse_model
from vitlab.core.recipe import Recipe, stored_recipe
from vitlab.core.store import read_about, write_tensors
from vitlab.identity import set_origin
from vitlab.markers import parts_in
from vitlab.preprocessing import declare
from vitlab.preprocessing.declaration import from_hugging_face, from_torchvision
from vitlab.surgery import retrofit

__all__ = ["builder_of", "load", "model_names", "recipe_of", "save"]

_HUB = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"  # where timm's and Hugging Face's weights are

_WEIGHTS = ("weights", "weights_entry", "pretrained")


def load(expression: str, *, seed: int | None = None) -> nn.Module:
    """Build the model that an expression describes, parts included.

    Args:
        expression: for example `"timm/deit_tiny_patch16_224(pretrained=True) | ContextBroadcast(blocks='upper')"`.
        seed: seeds the random initialisation, and leaves the random state as it was.

    Returns:
        The model, as its library builds it (in training mode, as timm's `create_model` does). It remembers where its
        weights came from (`vitlab.identity`).
    """
    parsed = parse_model(expression)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        model, origin = _build(parsed)
    set_origin(model, origin, expression.strip())
    return model


def save(model: nn.Module, expression: str, path: str) -> None:
    """Write a model's weights with the expression that builds it, so that `file/PATH` loads it again."""
    parse_model(expression)
    write_tensors(path, model.state_dict(), {"model": expression})


def builder_of(expression: str) -> str:
    """The expression that builds the same model with random weights, without files or downloads."""
    parsed = parse_model(expression)
    if parsed.source == "file":
        _, about = _read_own(parsed.name)
        return " | ".join([_built_by(parsed.name, about), *map(str, parsed.parts)])
    settings = {key: value for key, value in parsed.settings.items() if key not in _WEIGHTS}
    if parsed.source == "timm" and "." in parsed.name:
        settings["pretrained"] = False
    return str(replace(parsed, settings=settings))


def recipe_of(expression: str) -> Recipe | None:
    """The recipe that trained a model, where the expression names a file or run folder of vitlab."""
    parsed = parse_model(expression)
    file = parsed.name if parsed.source == "file" else parsed.settings.get("weights")
    if not isinstance(file, str) or _weights_file(file).suffix != ".safetensors":
        return None
    about = read_about(_weights_file(file))
    return stored_recipe(about["recipe"]) if "recipe" in about else None


def model_names(source: str) -> list[str]:
    """All models of a source that have names: timm, torchvision, vitlab."""
    if source == "timm":
        import timm

        ours = set(model_names("vitlab"))
        return [name for name in timm.list_models() if name not in ours]
    if source == "torchvision":
        import torchvision

        return torchvision.models.list_models(module=torchvision.models)
    if source == "vitlab":
        import timm

        names = [name for module in _own_modules() for name in timm.list_models(module=module.rpartition(".")[2])]
        return sorted(set(names))
    return []


def _build(parsed: ModelExpression) -> tuple[nn.Module, str]:
    """The model and where its weights came from, in words."""
    settings = dict(parsed.settings)
    if parsed.source == "file":
        model, origin, path = _from_file(parsed.name, settings), f"file: {parsed.name}", None
    else:
        path, entry = settings.pop("weights", None), settings.pop("weights_entry", None)
        if path is not None and settings.get("pretrained"):
            raise VitlabError(f"{parsed}: give weights= or pretrained=True, not both")
        build = {"timm": _timm, "torchvision": _torchvision, "hf": _hugging_face, "vitlab": _own}[parsed.source]
        model, origin = build(parsed.name, settings)
    if path is not None:
        return model, _load_weights(model, parsed, str(path), entry)
    _fit_parts(model, parsed)
    return model, origin


def _fit_parts(model: nn.Module, parsed: ModelExpression) -> None:
    for part in parsed.parts:
        retrofit(model, str(part))


def _load_weights(model: nn.Module, parsed: ModelExpression, path: str, entry: str | None) -> str:
    """Load a file's weights and fit the parts, which come first where the file has them too; returns the origin."""
    tensors, about = read_weights(path, entry)
    with_parts = bool(parts_in(tensors))
    if with_parts:
        _fit_parts(model, parsed)
    random_head = fill(model, tensors, path, new_head=True)
    if not with_parts and parsed.parts:
        names = ", ".join(dict.fromkeys(part.name for part in parsed.parts))
        warnings.warn(f"{path} was saved without {names}; what is fitted now is new to these weights", stacklevel=4)
        _fit_parts(model, parsed)
    _declare_as_trained(model, about, path)
    return f"file: {path}" + (" (random head)" if random_head else "")


def _timm(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    import timm

    if not timm.is_model(name.partition(".")[0]):
        raise _no_model("timm", name.partition(".")[0], timm.list_models())
    settings.setdefault("pretrained", "." in name)
    server = _HUB if settings["pretrained"] else ""
    model: Any = _wrapped(f"timm/{name}", lambda: timm.create_model(name, **settings), server)
    if settings.get("checkpoint_path"):
        return model, f"file: {settings['checkpoint_path']}"
    if not settings["pretrained"]:
        return model, "random"
    config = getattr(model, "pretrained_cfg", None) or {}
    tag = ".".join(word for word in (name.partition(".")[0], config.get("tag")) if word)
    origin = f"file: {config['file']}" if config.get("file") else f"hub: {tag}"
    same = config.get("num_classes") in (None, getattr(model, "num_classes", None))
    return model, origin if same else f"{origin} (random head)"


def _own(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    names = model_names("vitlab")
    if name not in names:
        raise _no_model("vitlab", name, names)
    return _timm(name, settings)


def _own_modules() -> list[str]:
    """Import the files of `models/`, which register themselves with timm."""
    modules = plugins.models()
    for module in modules:
        importlib.import_module(module)
    return modules


def _torchvision(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    import torchvision

    names = torchvision.models.list_models(module=torchvision.models)
    if name not in names:
        raise _no_model("torchvision", name, names)
    default: Any = getattr(torchvision.models.get_model_weights(name), "DEFAULT", None)
    weights = default if settings.pop("pretrained", False) else None
    server = "https://download.pytorch.org" if weights else ""
    model = _wrapped(
        f"torchvision/{name}", lambda: torchvision.models.get_model(name, weights=weights, **settings), server
    )
    if default is not None:
        categories = default.meta.get("categories", ())
        own_head = settings.get("num_classes", len(categories)) != len(categories)
        declare(model, **from_torchvision(default.transforms(), () if own_head else categories))
    return model, "random" if weights is None else f"hub: {name}.{weights.name}"


def _hugging_face(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    try:
        import transformers
    except ImportError:
        raise VitlabError("Hugging Face models need the extra 'hf': pip install 'vitlab[hf]'") from None

    pretrained = settings.pop("pretrained", False)

    def build() -> nn.Module:
        config = transformers.AutoConfig.from_pretrained(name, **settings)
        architecture = (config.architectures or ["AutoModel"])[0]
        kind = getattr(
            transformers, "CLIPVisionModel" if config.model_type == "clip" else architecture, transformers.AutoModel
        )
        if pretrained:
            return kind.from_pretrained(name, config=config, use_safetensors=True)
        return kind._from_config(config) if hasattr(kind, "_from_config") else kind.from_config(config)

    local = Path(name).is_dir()
    model: Any = _wrapped(f"hf/{name}", build, "" if local else _HUB)
    processor = _image_processor(name)
    if processor is not None:
        declare(model, **from_hugging_face(processor, getattr(model.config, "id2label", None)))
    return model, f"{'file' if local else 'hub'}: {name}" if pretrained else "random"


def _image_processor(name: str) -> dict[str, Any] | None:
    """The configuration of a model's image processor, from its folder or the hub; None where it has none."""
    from transformers.utils import cached_file

    for file in ("preprocessor_config.json", "processor_config.json"):
        path = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
        if path is not None:
            found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            return found
    return None


def _from_file(path: str, settings: dict[str, Any]) -> nn.Module:
    tensors, about = _read_own(path)
    expression = _built_by(path, about)
    if settings:
        raise VitlabError(
            f"file/{path} takes no settings ({', '.join(settings)} given): the file says what the model is"
        )
    model: Any = _build(parse_model(expression))[0]
    fill(model, tensors, path)
    _declare_as_trained(model, about, path)
    return model


def _declare_as_trained(model: nn.Module, about: dict[str, Any], path: str) -> None:
    """Declare the preprocessing that a file of ours was trained with; files of others say nothing."""
    fields = dict(about.get("preprocessing") or {})
    if not fields and "mean" in about and "std" in about:  # written before all of it was stored
        fields = {"mean": about["mean"], "std": about["std"]}
    if fields:
        declare(model, **{**fields, "classes": tuple(about.get("classes", ())), "source": f"training run {path}"})


def _read_own(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of a file of ours, or of the last weights of a run folder, and what is said of them."""
    return read_weights(_weights_file(path))


def _weights_file(path: str) -> Path:
    """The path itself, or the last weights of a run folder."""
    inside = Path(path) / "model.safetensors"
    if Path(path).is_dir() and not inside.is_file():
        raise VitlabError(f"the run folder {path} holds no model.safetensors; has its training finished?")
    return inside if inside.is_file() else Path(path)


def _built_by(path: str, about: dict[str, Any]) -> str:
    """What a file of ours says builds its model."""
    if "model" not in about:
        raise VitlabError(
            f"{path} holds weights but does not say of which model; name it, for example timm/NAME(weights={path!r})"
        )
    expression = str(about["model"])
    if parse_model(expression).source == "file":
        raise VitlabError(f"{path} names another file as its model; it should name what builds it")
    return expression


def _wrapped(what: str, build: Callable[[], nn.Module], server: str = "") -> nn.Module:
    """Build, perhaps with files from a server, and turn whatever another library raises into one line."""
    try:
        with downloading_from(server):
            return build()
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise VitlabError(f"{what} could not be built: {reason}") from error


def _no_model(source: str, name: str, names: list[str]) -> VitlabError:
    near = get_close_matches(name, names, n=5, cutoff=0.5)
    hint = f"near it: {', '.join(near)}; " if near else ""
    return VitlabError(f"no model {name!r} in {source}; {hint}`vitlab list models` shows all {len(names)}")
