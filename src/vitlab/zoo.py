"""From a model expression to a model: timm's, torchvision's, Hugging Face's, ours, or one from a file.

Weights are random unless the expression asks for others; nothing that a user hands over is unpickled.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitlab.core import plugins
from vitlab.core.downloads import downloading_from
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import ModelExpression, parse_model
from vitlab.core.recipe import Recipe, stored_recipe
from vitlab.core.store import read_about, read_tensors, write_tensors
from vitlab.preprocessing import declare
from vitlab.preprocessing.declaration import from_hugging_face, from_torchvision
from vitlab.surgery import retrofit

__all__ = ["builder_of", "load", "model_names", "recipe_of", "save", "weights_file", "weights_of"]

_HUB = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"  # where timm's and Hugging Face's weights are


def load(expression: str, *, seed: int | None = None) -> nn.Module:
    """Build the model that an expression describes, parts included.

    Args:
        expression: for example `"timm/deit_tiny_patch16_224(pretrained=True) | ContextBroadcast(blocks='upper')"`.
        seed: seeds the random initialisation, and leaves the random state as it was.

    Returns:
        The model, as its library builds it (in training mode, as timm's `create_model` does).
    """
    parsed = parse_model(expression)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        return _build(parsed)


def save(model: nn.Module, expression: str, path: str) -> None:
    """Write a model's weights with the expression that builds it, so that `file/PATH` loads it again."""
    parse_model(expression)
    write_tensors(path, model.state_dict(), {"model": expression})


def builder_of(expression: str) -> str:
    """The expression that builds the same model with random weights, without files or downloads."""
    parsed = parse_model(expression)
    if parsed.source == "file":
        about = read_about(weights_file(parsed.name))
        return " | ".join([_built_by(parsed.name, about), *map(str, parsed.parts)])
    settings = {key: value for key, value in parsed.settings.items() if key not in ("weights", "pretrained")}
    if parsed.source == "timm" and "." in parsed.name:
        settings["pretrained"] = False
    return str(replace(parsed, settings=settings))


def recipe_of(expression: str) -> Recipe | None:
    """The recipe that trained a model, where the expression names a file or run folder of vitlab."""
    parsed = parse_model(expression)
    file = parsed.name if parsed.source == "file" else parsed.settings.get("weights")
    if not isinstance(file, str) or Path(file).suffix in (".pth", ".pt", ".bin"):
        return None
    about = read_about(weights_file(file))
    return stored_recipe(about["recipe"]) if "recipe" in about else None


def weights_file(path: str) -> str:
    """The file that holds the weights: the path itself, or `model.safetensors` of a run folder."""
    inside = Path(path) / "model.safetensors"
    if Path(path).is_dir() and not inside.is_file():
        raise VitlabError(f"the run folder {path} holds no model.safetensors; has its training finished?")
    return str(inside) if inside.is_file() else path


def weights_of(expression: str) -> str:
    """Which weights an expression asks for, in words.

    >>> weights_of("timm/vit_tiny_patch16_224"), weights_of("timm/vit_tiny_patch16_224.augreg_in21k")
    ('random', 'pretrained (tag augreg_in21k)')
    """
    parsed = parse_model(expression)
    if parsed.source == "file":
        return f"file {parsed.name}"
    if "weights" in parsed.settings:
        return f"file {parsed.settings['weights']}"
    if parsed.source == "timm" and "." in parsed.name:
        return f"pretrained (tag {parsed.name.partition('.')[2]})"
    return "pretrained" if parsed.settings.get("pretrained") else "random"


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


def _build(parsed: ModelExpression) -> nn.Module:
    settings = dict(parsed.settings)
    if parsed.source == "file":
        model = _from_file(parsed.name, settings)
    else:
        weights = settings.pop("weights", None)
        if weights is not None and settings.get("pretrained"):
            raise VitlabError(f"{parsed}: give weights= or pretrained=True, not both")
        build = {"timm": _timm, "torchvision": _torchvision, "hf": _hugging_face, "vitlab": _own}[parsed.source]
        model = build(parsed.name, settings)
        if weights is not None:
            _load_weights(model, str(weights))
    for part in parsed.parts:
        retrofit(model, str(part))
    return model


def _timm(name: str, settings: dict[str, Any]) -> nn.Module:
    import timm

    if not timm.is_model(name.partition(".")[0]):
        raise _no_model("timm", name.partition(".")[0], timm.list_models())
    settings.setdefault("pretrained", "." in name)
    server = _HUB if settings["pretrained"] else ""
    return _wrapped(f"timm/{name}", lambda: timm.create_model(name, **settings), server)


def _own(name: str, settings: dict[str, Any]) -> nn.Module:
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


def _torchvision(name: str, settings: dict[str, Any]) -> nn.Module:
    import torchvision

    names = torchvision.models.list_models(module=torchvision.models)
    if name not in names:
        raise _no_model("torchvision", name, names)
    weights = "DEFAULT" if settings.pop("pretrained", False) else None
    server = "https://download.pytorch.org" if weights else ""
    model = _wrapped(
        f"torchvision/{name}", lambda: torchvision.models.get_model(name, weights=weights, **settings), server
    )
    default: Any = getattr(torchvision.models.get_model_weights(name), "DEFAULT", None)
    if default is not None:
        categories = default.meta.get("categories", ())
        own_head = settings.get("num_classes", len(categories)) != len(categories)
        declare(model, **from_torchvision(default.transforms(), () if own_head else categories))
    return model


def _hugging_face(name: str, settings: dict[str, Any]) -> nn.Module:
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

    model: Any = _wrapped(f"hf/{name}", build, "" if Path(name).is_dir() else _HUB)
    processor = _image_processor(name)
    if processor is not None:
        declare(model, **from_hugging_face(processor, getattr(model.config, "id2label", None)))
    return model


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
    path = weights_file(path)
    tensors, about = read_tensors(path)
    expression = _built_by(path, about)
    if settings:
        raise VitlabError(
            f"file/{path} takes no settings ({', '.join(settings)} given): the file says what the model is"
        )
    model: Any = load(expression)
    _fill(model, tensors, path)
    _declare_as_trained(model, about, path)
    return model


def _declare_as_trained(model: nn.Module, about: dict[str, Any], path: str) -> None:
    """Declare the preprocessing that a file of ours was trained with; files of others say nothing."""
    fields = dict(about.get("preprocessing") or {})
    if not fields and "mean" in about and "std" in about:  # written by vitlab before it stored all of it
        fields = {"mean": about["mean"], "std": about["std"]}
    if fields:
        declare(model, **{**fields, "classes": tuple(about.get("classes", ())), "source": f"training run {path}"})


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


def _load_weights(model: nn.Module, path: str) -> None:
    tensors, about = read_tensors(path)
    _fill(model, tensors, path)
    _declare_as_trained(model, about, path)


def _fill(model: nn.Module, tensors: dict[str, Any], path: str) -> None:
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise VitlabError(
            f"{path} does not fit {type(model).__name__}: {' '.join(str(error).split())[:300]}"
        ) from error


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
