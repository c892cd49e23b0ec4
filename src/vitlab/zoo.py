"""Build a model from a model expression: from timm, torchvision, Hugging Face, vitlab or a file.

Weights are random unless the expression requests others. User files are never unpickled.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from vitlab.checkpoints import from_released, load_weights, read_weights
from vitlab.core import plugins
from vitlab.core.downloads import HUB, downloading_from
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import ModelExpression, parse_model
from vitlab.core.extensions import resolve_all
from vitlab.core.machine_memory import is_allocation_failure
from vitlab.core.recipe import Recipe, stored_recipe
from vitlab.core.settings import check_settings, check_value
from vitlab.core.signatures import Setting, settings_of
from vitlab.core.store import read_about, write_tensors
from vitlab.identity import set_origin
from vitlab.markers import parts_in
from vitlab.models._library_settings import (
    check_configuration,
    check_torchvision_settings,
    configuration_settings,
    torchvision_settings,
)
from vitlab.models._settings import COMMON, architecture, check_size
from vitlab.models._timm_settings import check_timm_settings, timm_settings
from vitlab.models._vilt import build_vilt, check_vilt, pretrained_body, vilt_configuration, weights_file
from vitlab.preprocessing import declare
from vitlab.preprocessing.declaration import from_hugging_face, from_torchvision
from vitlab.surgery import changes_reported, check_part, retrofit

__all__ = ["builder_of", "load", "model_names", "recipe_of", "registered_by", "save", "settings_of_model"]


_T = TypeVar("_T")
_VILT = ("vitlab", "vilt")  # question answering: not an image classifier of timm's registry
_WEIGHTS = ("weights", "weights_entry", "pretrained")


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
    for part in parsed.parts:
        check_part(part)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        model, origin = _build(parsed)
    set_origin(model, origin, expression.strip(), builder_of(expression))
    return model


def save(model: nn.Module, expression: str, path: str) -> None:
    """Write a model's weights and the expression that builds it to a file, which `file/PATH` loads."""
    parse_model(expression)
    write_tensors(path, model.state_dict(), {"model": expression})


def builder_of(expression: str) -> str:
    """The expression that builds the same architecture with random weights, without files or downloads."""
    parsed = parse_model(expression)
    if parsed.source == "file":
        file = _weights_file(parsed.name)
        metadata = read_about(file) if file.suffix == ".safetensors" else read_weights(file)[1]
        return " | ".join([_builder_expression(parsed.name, metadata, parsed.settings), *map(str, parsed.parts)])
    settings = {key: value for key, value in parsed.settings.items() if key not in _WEIGHTS}
    if _is_assembly(parsed) and isinstance(settings.get("backbone"), str):
        settings["backbone"] = builder_of(settings["backbone"])
    if parsed.source == "timm" and "." in parsed.name:
        settings["pretrained"] = False
    return str(replace(parsed, settings=settings))


def recipe_of(expression: str) -> Recipe | None:
    """The recipe that trained a model, if the expression names a file or run folder of vitlab, else None."""
    parsed = parse_model(expression)
    file = parsed.name if parsed.source == "file" else parsed.settings.get("weights")
    if not isinstance(file, str) or _weights_file(file).suffix != ".safetensors":
        return None
    metadata = read_about(_weights_file(file))
    return stored_recipe(metadata["recipe"]) if "recipe" in metadata else None


def model_names(source: str) -> list[str]:
    """All model names of a source: timm, torchvision or vitlab; empty for other sources."""
    if source == "timm":
        import timm

        own = set(model_names("vitlab"))
        return [name for name in timm.list_models() if name not in own]
    if source == "torchvision":
        import torchvision

        names: list[str] = torchvision.models.list_models(module=torchvision.models)
        return names
    if source == "vitlab":
        import timm

        names = [name for module in _vitlab_modules() for name in registered_by(module)]
        return sorted(set(names))
    return []


def settings_of_model(expression: str) -> list[Setting]:
    """The settings of a model by its name, with types, defaults and valid values.

    Args:
        expression: for example `"timm/vit_tiny_patch16_224"`; of a file, those of the model in it.
    """
    parsed = parse_model(builder_of(expression))
    source, name = parsed.source, parsed.name
    pretrained = Setting("pretrained", bool, False, "whether to load published weights.")
    weights = Setting("weights", str | None, None, "path of a file of weights.")
    if (source, name) == _VILT:
        return [*configuration_settings(vilt_configuration()), weights]
    if _is_assembly(parsed):
        build = getattr(importlib.import_module(plugins.assemblies()[name]), name)
        return [Setting("backbone", str, help="expression of the backbone."), *settings_of(build, 1), weights]
    if source == "hf":
        return [*configuration_settings(_configuration(name)), pretrained, weights]
    names = model_names(source)
    if name.partition(".")[0] not in names:
        raise _unknown_model(source, name, names)
    if source == "torchvision":
        return [*torchvision_settings(name), pretrained, weights]
    shared = {each.name: each for each in settings_of(architecture) if source == "vitlab" or each.name in COMMON}
    own = [
        replace(shared[each.name], default=each.default) if each.name in shared else each
        for each in timm_settings(name)
    ]
    return [*own, replace(pretrained, default="." in name), weights]


def _configuration(name: str, **settings: Any) -> Any:
    """The configuration of a model of Hugging Face, of its folder or the hub."""
    try:
        import transformers
    except ImportError:
        raise VitlabError("Hugging Face models need the extra 'hf': pip install 'vitlab[hf]'") from None
    server = "" if Path(name).is_dir() else HUB
    return _build_or_raise(f"hf/{name}", lambda: transformers.AutoConfig.from_pretrained(name, **settings), server)


def _build(parsed: ModelExpression) -> tuple[nn.Module, str]:
    """The model and the origin of its weights."""
    settings = dict(parsed.settings)
    if parsed.source == "file":
        path = None
        model, origin = _from_file(parsed.name, settings)
    else:
        path, entry = settings.pop("weights", None), settings.pop("weights_entry", None)
        if path is not None and settings.get("pretrained"):
            raise VitlabError(f"{parsed} has both weights= and pretrained=True; expected one of them")
        build = {"timm": _timm, "torchvision": _torchvision, "hf": _hugging_face, "vitlab": _vitlab}[parsed.source]
        model, origin = build(parsed.name, settings)
    if path is not None:
        return model, _load_file_weights(model, parsed, str(path), entry)
    _fit_parts(model, parsed, origin)
    return model, origin


def _fit_parts(model: nn.Module, parsed: ModelExpression, origin: str = "random") -> None:
    """Insert the parts of an expression; warns if they change the outputs of trained weights."""
    names = list(dict.fromkeys(part.name for part in parsed.parts))
    with changes_reported(model, "" if origin == "random" else origin, names):
        for part in parsed.parts:
            retrofit(model, str(part))


def _load_file_weights(model: nn.Module, parsed: ModelExpression, path: str, entry: str | None) -> str:
    """Load a file's weights and fit the parts, which are fitted first if the file has them; returns the origin."""
    is_vilt = (parsed.source, parsed.name) == _VILT
    tensors, metadata = read_weights(weights_file(path) if is_vilt else _weights_file(path), entry)
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


def _timm(name: str, settings: dict[str, Any], source: str = "timm") -> tuple[nn.Module, str]:
    import timm

    if not timm.is_model(name.partition(".")[0]):
        raise _unknown_model("timm", name.partition(".")[0], timm.list_models())
    check_settings(f"{source}/{name}", architecture, {key: settings[key] for key in COMMON if key in settings}, 0)
    check_timm_settings(name, {key: value for key, value in settings.items() if key not in COMMON}, source)
    settings.setdefault("pretrained", "." in name)
    plain = {key: value for key, value in settings.items() if key not in ("pretrained", "checkpoint_path")}
    check_size(f"{source}/{name}", plain, lambda **sized: timm.create_model(name, pretrained=False, **sized))
    server = HUB if settings["pretrained"] else ""
    model: Any = _build_or_raise(f"{source}/{name}", lambda: timm.create_model(name, **settings), server)
    if settings.get("checkpoint_path"):
        return model, f"file: {settings['checkpoint_path']}"
    if not settings["pretrained"]:
        return model, "random"
    config = getattr(model, "pretrained_cfg", None) or {}
    tag = ".".join(word for word in (name.partition(".")[0], config.get("tag")) if word)
    origin = f"file: {config['file']}" if config.get("file") else f"hub: {tag}"
    same = config.get("num_classes") in (None, getattr(model, "num_classes", None))
    return model, origin if same else f"{origin} (random head)"


def _vitlab(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    if ("vitlab", name) == _VILT:
        check_vilt(settings)
        check_size("vitlab/vilt", settings, lambda **sized: build_vilt(sized))
        return _build_or_raise("vitlab/vilt", lambda: build_vilt(settings)), "random"
    if name in plugins.assemblies():
        return _assembly(name, settings)
    names = model_names("vitlab")
    if name not in names:
        raise _unknown_model("vitlab", name, [*names, *plugins.assemblies(), "vilt"])
    check_settings(f"vitlab/{name}", architecture, settings, 0)
    return _timm(name, settings, "vitlab")


def _assembly(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    """An assembly around the backbone that its setting `backbone` describes."""
    text = settings.pop("backbone", None)
    if not isinstance(text, str):
        raise VitlabError(
            f"vitlab/{name} needs a backbone; write vitlab/{name}(backbone='timm/vit_tiny_patch16_224', …)"
        )
    build = getattr(importlib.import_module(plugins.assemblies()[name]), name)
    check_settings(f"vitlab/{name}", build, settings, 1)
    if _is_assembly(parse_model(builder_of(text))):
        raise VitlabError(f"the backbone {text!r} of vitlab/{name} is an assembly itself; expected a backbone")
    backbone, origin = _build(parse_model(text))
    random = origin == "random" or origin.endswith(" (random head)")
    model: nn.Module = _build_or_raise(f"vitlab/{name}", lambda: build(backbone, **settings))
    return model, origin if random else f"{origin} (random head)"


def _is_assembly(parsed: ModelExpression) -> bool:
    return parsed.source == "vitlab" and parsed.name in plugins.assemblies()


def registered_by(reference: str) -> list[str]:
    """The models that a module registers with timm, or one that an extension names."""
    import timm

    module, _, name = reference.rpartition(":")
    return [name] if module else timm.list_models(module=reference.rpartition(".")[2])


def _vitlab_modules() -> list[str]:
    """Import the modules of `models/` and of extensions, which register their models with timm."""
    return list(resolve_all(plugins.models()))


def _torchvision(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    import torchvision

    names = torchvision.models.list_models(module=torchvision.models)
    if name not in names:
        raise _unknown_model("torchvision", name, names)
    default: Any = getattr(torchvision.models.get_model_weights(name), "DEFAULT", None)
    weights = default if _pretrained(f"torchvision/{name}", settings) else None
    check_torchvision_settings(name, settings)
    check_size(
        f"torchvision/{name}", settings, lambda **sized: torchvision.models.get_model(name, weights=None, **sized)
    )
    server = "https://download.pytorch.org" if weights else ""
    categories = default.meta.get("categories", ()) if default is not None else ()
    own_head = settings.get("num_classes", len(categories)) != len(categories)

    def build() -> nn.Module:
        model: nn.Module = torchvision.models.get_model(name, weights=None if own_head else weights, **settings)
        if own_head and weights is not None:  # torchvision loads no weights into another head
            load_weights(model, weights.get_state_dict(progress=False), f"{name}.{weights.name}", new_head=True)
        return model

    model = _build_or_raise(f"torchvision/{name}", build, server)
    if default is not None:
        declare(model, **from_torchvision(default.transforms(), () if own_head else categories))
    return model, "random" if weights is None else f"hub: {name}.{weights.name}" + (
        " (random head)" if own_head else ""
    )


def _hugging_face(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    try:
        import transformers
    except ImportError:
        raise VitlabError("Hugging Face models need the extra 'hf': pip install 'vitlab[hf]'") from None

    pretrained = _pretrained(f"hf/{name}", settings)
    replaced: list[str] = []  # tensors that do not fit, and keep their random values

    def configure(**given: Any) -> tuple[Any, Any]:
        """The class of the model and its configuration."""
        config = transformers.AutoConfig.from_pretrained(name, **given)
        architecture = (config.architectures or ["AutoModel"])[0]
        kind = "CLIPVisionModel" if config.model_type == "clip" else architecture
        return getattr(transformers, kind, transformers.AutoModel), config

    def build_random(**given: Any) -> Any:
        kind, config = configure(**given)
        return kind._from_config(config) if hasattr(kind, "_from_config") else kind.from_config(config)

    def build() -> Any:
        if not pretrained:
            return build_random(**settings)
        kind, config = configure(**settings)
        options = {"use_safetensors": True, "ignore_mismatched_sizes": "num_labels" in settings}
        model, loaded = kind.from_pretrained(name, config=config, output_loading_info=True, **options)
        replaced.extend(key if isinstance(key, str) else key[0] for key in loaded["mismatched_keys"])
        return model

    local = Path(name).is_dir()
    server = "" if local else HUB
    if settings:
        check_configuration(f"hf/{name}", _configuration(name), settings)
        check_size(f"hf/{name}", settings, build_random)
    model: Any = _build_or_raise(f"hf/{name}", build, server)
    processor = _build_or_raise(f"hf/{name}", lambda: _image_processor(name), server)
    if processor is not None:
        declare(model, **from_hugging_face(processor, getattr(model.config, "id2label", None)))
    if any("classifier" not in key for key in replaced):
        raise VitlabError(
            f"the weights of hf/{name} do not fit its settings ({', '.join(replaced)}); omit all but num_labels"
        )
    head = " (random head)" if replaced else ""
    return model, f"{'file' if local else 'hub'}: {name}{head}" if pretrained else "random"


def _pretrained(what: str, settings: dict[str, Any]) -> bool:
    """Remove the setting `pretrained` and return its value."""
    value = settings.pop("pretrained", False)
    check_value(what, "pretrained", value, bool)
    return bool(value)


def _image_processor(name: str) -> dict[str, Any] | None:
    """The configuration of a model's image processor, from its folder or the hub; None if it has none."""
    from transformers.utils import cached_file

    for file in ("preprocessor_config.json", "processor_config.json"):
        path = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
        if path is not None:
            config: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            return config
    return None


def _from_file(path: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    """The model of a vitlab file and the origin of its weights; settings replace those of the expression in the file.

    With settings, the classifier may have another number of classes, and position embeddings another grid.
    """
    tensors, metadata = _read_vitlab_file(path)
    model: Any = _build(parse_model(_builder_expression(path, metadata, settings)))[0]
    random_head = load_weights(model, tensors, path, new_head=bool(settings))
    _declare_as_trained(model, metadata, path, random_head=random_head)
    return model, f"file: {path}" + (" (random head)" if random_head else "")


def _declare_as_trained(model: nn.Module, metadata: dict[str, Any], path: str, *, random_head: bool = False) -> None:
    """Declare the preprocessing stored in a file of vitlab, and its classes unless the head is new."""
    fields = dict(metadata.get("preprocessing") or {})
    if not fields and "mean" in metadata and "std" in metadata:  # files of older versions store no other fields
        fields = {"mean": metadata["mean"], "std": metadata["std"]}
    if fields:
        classes = () if random_head else tuple(metadata.get("classes", ()))
        declare(model, **{**fields, "classes": classes, "source": f"training run {path}"})


def _read_vitlab_file(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors and metadata of a vitlab file, or of the last weights of a run folder."""
    return read_weights(_weights_file(path))


def _weights_file(path: str) -> Path:
    """The path itself, or the last weights of a run folder."""
    inside = Path(path) / "model.safetensors"
    if Path(path).is_dir() and not inside.is_file():
        raise VitlabError(f"the run folder {path} has no model.safetensors; finish or resume its training")
    return inside if inside.is_file() else Path(path)


def _builder_expression(path: str, metadata: dict[str, Any], settings: Mapping[str, Any] | None = None) -> str:
    """The expression in a vitlab file that builds its model, with changed settings."""
    if "model" not in metadata:
        raise VitlabError(
            f"{path} has weights but no model expression; name the model, for example timm/NAME(weights={path!r})"
        )
    expression = str(metadata["model"])
    parsed = parse_model(expression)
    if parsed.source == "file":
        raise VitlabError(
            f"{path} names another file as its model; expected an expression with the source of the architecture"
        )
    return str(replace(parsed, settings={**parsed.settings, **settings})) if settings else expression


def _build_or_raise(what: str, build: Callable[[], _T], server: str = "") -> _T:
    """Build a model, with downloads from `server` if given; errors of other libraries become one-line errors."""
    try:
        with downloading_from(server):
            return build()
    except Exception as error:
        if is_allocation_failure(error):
            raise VitlabError(f"{what} does not fit into the memory of this machine; use smaller settings") from error
        reason = " ".join(str(error).split()) or type(error).__name__
        raise VitlabError(f"{what} could not be built: {reason}") from error


def _unknown_model(source: str, name: str, names: list[str]) -> VitlabError:
    near = get_close_matches(name, names, n=5, cutoff=0.5)
    hint = f"similar names: {', '.join(near)}; " if near else ""
    return VitlabError(f"no model {name!r} in {source}; {hint}`vitlab list models` lists all {len(names)}")
