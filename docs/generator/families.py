"""The example model of each family, described without weights, on torch's meta device, where nothing is computed."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import torch
from torch import nn

from vitlab import zoo
from vitlab.adapters import describe
from vitlab.core import plugins
from vitlab.core.anatomy import Anatomy
from vitlab.core.errors import VitlabError


def adapters() -> dict[str, ModuleType]:
    """Every family with the adapter that knows it."""
    modules = [importlib.import_module(name) for name in plugins.adapter_modules()]
    return {family: module for module in modules for family in sorted(module.FAMILIES)}


def anatomy(family: str) -> Anatomy | None:
    """What the family's example model is made of; None where it cannot be built on this machine.

    >>> anatomy("deit").seams[:2]
    ('attn.in', 'attn')
    """
    adapter = adapters()[family]
    example = adapter.FAMILIES[family]
    for device in ("meta", "cpu"):  # ViLT asks for a number in its forward, which a meta tensor has not
        try:
            with torch.device(device):
                model = _from_classes(family, adapter) if example.startswith("hf/") else zoo.load(example)
                return None if model is None else describe(model)
        except VitlabError:
            continue
    return None


def _from_classes(family: str, adapter: ModuleType) -> nn.Module | None:
    """Hugging Face's example would be downloaded: its class with the default configuration has the same anatomy."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for name in adapter.CLASSES:
        module, _, kind = name.rpartition(".")
        try:
            known = getattr(importlib.import_module(module), kind, None)
        except ImportError:
            return None
        model = known(known.config_class()) if known is not None else None
        if model is not None and adapter.family(model) == family:
            return model
    return None
