"""The optimiser with its parameter groups, and the learning rate schedule."""

from __future__ import annotations

import math
from typing import Any

import torch
from timm.optim import param_groups_weight_decay
from torch import nn

from vitlab.core import recipe as recipes


def make_optimizer(model: nn.Module, settings: recipes.Optimizer, device: torch.device) -> torch.optim.Optimizer:
    """Returns AdamW or SGD with two parameter groups: with weight decay, and without it.

    Biases, norms, scales and embeddings have no weight decay. On CUDA the update is fused and the learning rate is a
    tensor, so that a step can be captured in a CUDA graph.
    """
    names: Any = getattr(model, "no_weight_decay", None)
    exempt = set(names()) if callable(names) else set()
    groups = param_groups_weight_decay(model, settings.weight_decay, no_weight_decay_list=exempt)
    if settings.name == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.momentum > 0)
    on_cuda = device.type == "cuda"
    rate = torch.tensor(settings.lr, device=device) if on_cuda else settings.lr
    return torch.optim.AdamW(groups, lr=rate, betas=settings.betas, fused=on_cuda, capturable=on_cuda)


def learning_rate(settings: recipes.Optimizer, step: int, steps_per_epoch: int, epochs: int) -> float:
    """The learning rate of a step: linear warm-up, then cosine decay to `min_lr` at the last step.

    >>> settings = recipes.Optimizer(lr=1.0, warmup_epochs=1, warmup_lr=0.0, min_lr=0.0)
    >>> [round(learning_rate(settings, step, 2, 3), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.25, 0.0]
    """
    warmup, last = round(settings.warmup_epochs * steps_per_epoch), steps_per_epoch * epochs - 1
    if step < warmup:
        return settings.warmup_lr + (settings.lr - settings.warmup_lr) * (step + 1) / warmup
    done = (step - warmup) / max(1, last - warmup)
    return settings.min_lr + (settings.lr - settings.min_lr) * (1 + math.cos(math.pi * min(1.0, done))) / 2


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Set the learning rate of all groups, without synchronising with the device."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value
