"""The names of models, and the settings of a model by its name."""

from __future__ import annotations

import importlib
from dataclasses import replace

from vitlab.core import plugins
from vitlab.core.expressions import parse_model
from vitlab.core.extensions import resolve_all
from vitlab.core.signatures import Setting, settings_of
from vitlab.models._library_settings import configuration_settings, torchvision_settings
from vitlab.models._settings import COMMON, architecture
from vitlab.models._timm_settings import timm_settings
from vitlab.models._vilt import vilt_configuration
from vitlab.zoo.expressions import VILT, builder_of, is_assembly
from vitlab.zoo.libraries import hugging_face_configuration, unknown_model


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
    if (source, name) == VILT:
        return [*configuration_settings(vilt_configuration()), weights]
    if is_assembly(parsed):
        build = getattr(importlib.import_module(plugins.assemblies()[name]), name)
        return [Setting("backbone", str, help="expression of the backbone."), *settings_of(build, 1), weights]
    if source == "hf":
        return [*configuration_settings(hugging_face_configuration(name)), pretrained, weights]
    names = model_names(source)
    if name.partition(".")[0] not in names:
        raise unknown_model(source, name, names)
    if source == "torchvision":
        return [*torchvision_settings(name), pretrained, weights]
    shared = {each.name: each for each in settings_of(architecture) if source == "vitlab" or each.name in COMMON}
    own = [
        replace(shared[each.name], default=each.default) if each.name in shared else each
        for each in timm_settings(name)
    ]
    return [*own, replace(pretrained, default="." in name), weights]


def registered_by(reference: str) -> list[str]:
    """The models that a module registers with timm, or one that an extension names."""
    import timm

    module, _, name = reference.rpartition(":")
    return [name] if module else timm.list_models(module=reference.rpartition(".")[2])


def _vitlab_modules() -> list[str]:
    """Import the modules of `models/` and of extensions, which register their models with timm."""
    return list(resolve_all(plugins.models()))
