"""Describe the example model of each family, without weights, on torch's meta device."""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch
from torch import nn

from vitlab import zoo
from vitlab.adapters import describe
from vitlab.core import plugins
from vitlab.core.anatomy import Anatomy
from vitlab.core.errors import VitlabError
from vitlab.core.extensions import resolve


def anatomy(family: str) -> Anatomy | None:
    """Returns the anatomy of the family's example model; None where it cannot be built on this machine.

    >>> anatomy("deit").seams[:2]
    ('attn.in', 'attn')
    """
    adapter = resolve(plugins.family_adapters()[family])
    example = adapter.FAMILIES[family]
    for device in ("meta", "cpu"):  # ViLT's forward calls item(), which meta tensors do not support
        try:
            with torch.device(device):
                model = _from_classes(family, adapter) if example.startswith("hf/") else zoo.load(example)
                return None if model is None else describe(model)
        except VitlabError:
            continue
    return None


def _from_classes(family: str, adapter: Any) -> nn.Module | None:
    """Build a Hugging Face model from its default configuration: same anatomy as the example, without a download."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for name in adapter.CLASSES:
        module, _, kind = name.rpartition(".")
        try:
            known = getattr(importlib.import_module(module), kind, None)
        except ImportError:
            return None
        if not hasattr(known, "config_class"):
            continue  # not in the installed version, or a class of another library
        model = known(known.config_class())
        if adapter.family(model) == family:
            return model
    return None
