"""What stands around a model: the wrappers of `torch.compile`, DataParallel and DistributedDataParallel."""

from __future__ import annotations

import sys

import torch
from torch import nn


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside its wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def forget_compiled() -> None:
    """Make compiled code look again: dynamo does not guard hooks, so a change of them would silently be ignored."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
