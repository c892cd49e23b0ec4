"""A model as it is used, not trained: for a while, and then as it was found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module gets its own mode back.

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
