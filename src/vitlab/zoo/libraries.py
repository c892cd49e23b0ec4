"""Build models of timm, torchvision and Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from vitlab.checkpoints import load_weights
from vitlab.core.downloads import HUB, downloading_from
from vitlab.core.errors import VitlabError
from vitlab.core.machine_memory import is_allocation_failure
from vitlab.core.settings import check_settings, check_value
from vitlab.models._library_settings import check_configuration, check_torchvision_settings
from vitlab.models._settings import COMMON, architecture, check_size
from vitlab.models._timm_settings import check_timm_settings
from vitlab.preprocessing import declare
from vitlab.preprocessing.declaration import from_hugging_face, from_torchvision

_T = TypeVar("_T")


def build_timm(name: str, settings: dict[str, Any], source: str = "timm") -> tuple[nn.Module, str]:
    """A model of timm's registry, which also has vitlab's models, and the origin of its weights."""
    import timm

    if not timm.is_model(name.partition(".")[0]):
        raise unknown_model("timm", name.partition(".")[0], timm.list_models())
    check_settings(f"{source}/{name}", architecture, {key: settings[key] for key in COMMON if key in settings}, 0)
    check_timm_settings(name, {key: value for key, value in settings.items() if key not in COMMON}, source)
    settings.setdefault("pretrained", "." in name)
    plain = {key: value for key, value in settings.items() if key not in ("pretrained", "checkpoint_path")}
    check_size(f"{source}/{name}", plain, lambda **sized: timm.create_model(name, pretrained=False, **sized))
    server = HUB if settings["pretrained"] else ""
    model: Any = build_or_raise(f"{source}/{name}", lambda: timm.create_model(name, **settings), server)
    if settings.get("checkpoint_path"):
        return model, f"file: {settings['checkpoint_path']}"
    if not settings["pretrained"]:
        return model, "random"
    config = getattr(model, "pretrained_cfg", None) or {}
    tag = ".".join(word for word in (name.partition(".")[0], config.get("tag")) if word)
    origin = f"file: {config['file']}" if config.get("file") else f"hub: {tag}"
    same = config.get("num_classes") in (None, getattr(model, "num_classes", None))
    return model, origin if same else f"{origin} (random head)"


def build_torchvision(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    """A model of torchvision, and the origin of its weights."""
    import torchvision

    names = torchvision.models.list_models(module=torchvision.models)
    if name not in names:
        raise unknown_model("torchvision", name, names)
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

    model = build_or_raise(f"torchvision/{name}", build, server)
    if default is not None:
        declare(model, **from_torchvision(default.transforms(), () if own_head else categories))
    return model, "random" if weights is None else f"hub: {name}.{weights.name}" + (
        " (random head)" if own_head else ""
    )


def build_hugging_face(name: str, settings: dict[str, Any]) -> tuple[nn.Module, str]:
    """A model of Hugging Face, by its name on the hub or its folder, and the origin of its weights."""
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
        check_configuration(f"hf/{name}", hugging_face_configuration(name), settings)
        check_size(f"hf/{name}", settings, build_random)
    model: Any = build_or_raise(f"hf/{name}", build, server)
    processor = build_or_raise(f"hf/{name}", lambda: _image_processor(name), server)
    if processor is not None:
        declare(model, **from_hugging_face(processor, getattr(model.config, "id2label", None)))
    if any("classifier" not in key for key in replaced):
        raise VitlabError(
            f"the weights of hf/{name} do not fit its settings ({', '.join(replaced)}); omit all but num_labels"
        )
    head = " (random head)" if replaced else ""
    return model, f"{'file' if local else 'hub'}: {name}{head}" if pretrained else "random"


def hugging_face_configuration(name: str, **settings: Any) -> Any:
    """The configuration of a model of Hugging Face, of its folder or the hub."""
    try:
        import transformers
    except ImportError:
        raise VitlabError("Hugging Face models need the extra 'hf': pip install 'vitlab[hf]'") from None
    server = "" if Path(name).is_dir() else HUB
    return build_or_raise(f"hf/{name}", lambda: transformers.AutoConfig.from_pretrained(name, **settings), server)


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


def build_or_raise(what: str, build: Callable[[], _T], server: str = "") -> _T:
    """Build a model, with downloads from `server` if given; errors of other libraries become one-line errors."""
    try:
        with downloading_from(server):
            return build()
    except Exception as error:
        if is_allocation_failure(error):
            raise VitlabError(f"{what} does not fit into the memory of this machine; use smaller settings") from error
        reason = " ".join(str(error).split()) or type(error).__name__
        raise VitlabError(f"{what} could not be built: {reason}") from error


def unknown_model(source: str, name: str, names: list[str]) -> VitlabError:
    """Returns the error for a name that a source does not have, with similar names."""
    near = get_close_matches(name, names, n=5, cutoff=0.5)
    hint = f"similar names: {', '.join(near)}; " if near else ""
    return VitlabError(f"no model {name!r} in {source}; {hint}`vitlab list models` lists all {len(names)}")
