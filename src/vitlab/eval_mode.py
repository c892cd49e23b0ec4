"""Temporary evaluation mode without gradients; training modes are restored on exit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Context manager: evaluation mode without gradients. The mode of every module is restored on exit.

    >>> model = nn.Dropout()
    >>> with eval_mode(model):
    ...     model.training, torch.is_grad_enabled()
    (False, False)
    >>> model.training
    True
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
