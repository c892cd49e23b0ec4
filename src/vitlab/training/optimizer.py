"""The optimiser with its parameter groups, and the learning rate schedule."""

from __future__ import annotations

import math
from typing import Any

import torch
from timm.optim import param_groups_weight_decay
from torch import nn

from vitlab.core import recipe as recipes
from vitlab.training.rate_scales import backbone_of, rate_scales


def make_optimizer(
    model: nn.Module,
    settings: recipes.Optimizer,
    device: torch.device,
    image_size: tuple[int, int] | None = None,
) -> torch.optim.Optimizer:
    """Returns AdamW or SGD with parameter groups by weight decay and by factor of the learning rate (`lr_scale`).

    Biases, norms, scales and embeddings have no weight decay. On CUDA the update is fused and the learning rates are
    tensors, one for each group, so that a step can be captured in a CUDA graph.

    Args:
        model: the model.
        settings: the settings.
        device: the device of the model.
        image_size: height and width of the model's input, for `layer_decay` and `head_lr`.
    """
    on_cuda = device.type == "cuda"
    groups = _groups(model, settings, image_size)
    for group in groups:
        rate = settings.lr * group["lr_scale"]
        group["lr"] = torch.tensor(rate, device=device) if on_cuda and settings.name == "adamw" else rate
    if settings.name == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.momentum > 0)
    return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, fused=on_cuda, capturable=on_cuda)


def learning_rate(settings: recipes.Optimizer, step: int, steps_per_epoch: int, epochs: int) -> float:
    """The learning rate of a step, for groups with factor 1.

    - `cosine`: from `lr` at the end of the warm-up to `min_lr` at the last step.
    - `poly`: min_lr + (lr − min_lr) (1 − step / steps)^power, over the whole run as in mmsegmentation and torch's
      `PolynomialLR`.
    - `step`: lr · 0.1^(number of milestones reached), as torch's `MultiStepLR`; without `min_lr`.

    The warm-up is linear from `warmup_lr` to the value of the schedule.

    >>> settings = recipes.Optimizer(lr=1.0, warmup_epochs=1, warmup_lr=0.0, min_lr=0.0)
    >>> [round(learning_rate(settings, step, 2, 3), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.25, 0.0]
    >>> settings = recipes.Optimizer(lr=1.0, warmup_epochs=0, schedule="step", milestones=(1, 2))
    >>> [round(learning_rate(settings, step, 2, 3), 3) for step in range(6)]
    [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """
    warmup, steps = round(settings.warmup_epochs * steps_per_epoch), steps_per_epoch * epochs
    value = settings.lr * 0.1 ** sum(step >= milestone * steps_per_epoch for milestone in settings.milestones)
    if settings.schedule == "cosine":
        done = (step - warmup) / max(1, steps - 1 - warmup)
        value = _between(settings, (1 + math.cos(math.pi * min(1.0, max(0.0, done)))) / 2)
    elif settings.schedule == "poly":
        value = _between(settings, max(0.0, 1 - step / steps) ** settings.power)
    if step < warmup:
        return settings.warmup_lr + (value - settings.warmup_lr) * (step + 1) / warmup
    return value


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Set the learning rate of all groups, each multiplied by its factor, without synchronising with the device."""
    for group in optimizer.param_groups:
        rate = value * group.get("lr_scale", 1.0)
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _between(settings: recipes.Optimizer, share: float) -> float:
    return settings.min_lr + (settings.lr - settings.min_lr) * share


def _groups(model: nn.Module, settings: recipes.Optimizer, image_size: tuple[int, int] | None) -> list[dict[str, Any]]:
    """Returns the groups of timm's weight decay, split by the factor of the learning rate."""
    scales = rate_scales(model, settings, image_size)
    scale_of = {id(parameter): scales[name] for name, parameter in model.named_parameters()}
    groups: list[dict[str, Any]] = []
    for group in param_groups_weight_decay(model, settings.weight_decay, no_weight_decay_list=_without_decay(model)):
        by_scale: dict[float, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            by_scale.setdefault(scale_of[id(parameter)], []).append(parameter)
        for scale, parameters in by_scale.items():
            groups.append({"params": parameters, "weight_decay": group["weight_decay"], "lr_scale": scale})
    return groups


def _without_decay(model: nn.Module) -> set[str]:
    """The names of parameters that the model, or its backbone, exempts from weight decay."""
    exempt: set[str] = set()
    for prefix, module in {("", model), backbone_of(model)}:
        names: Any = getattr(module, "no_weight_decay", None)
        exempt |= {prefix + name for name in names()} if callable(names) else set()
    return exempt
