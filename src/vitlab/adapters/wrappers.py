"""Wrappers of `torch.compile`, DataParallel and DistributedDataParallel."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn

from vitlab.core.errors import VitlabError


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside its wrappers; raises an error for what is not a module."""
    if not isinstance(model, nn.Module):
        raise VitlabError(
            f"invalid model of type {type(model).__name__}; expected a torch.nn.Module; use vitlab.load for text"
        )
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def guard_hooks() -> None:
    """Make Dynamo guard on module hooks.

    By default Dynamo does not guard hooks: a model compiled before a retrofit would silently run without the part, and
    the compiled code of a plain model would be reused for a fitted model of the same class. With guards it recompiles
    where hooks differ. Existing compiled code is discarded when the guards are enabled.
    """
    config: Any = importlib.import_module("torch._dynamo.config")
    if config.skip_nnmodule_hook_guards:
        config.skip_nnmodule_hook_guards = False
        torch._dynamo.reset()
