"""The state of a training run: all tensors that a step changes, and the position of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from vitlab.core.recipe import Recipe
from vitlab.training.distributed import full_tensor, load_full
from vitlab.training.optimizer import make_optimizer


@dataclass
class Position:
    """The number of finished steps, the next epoch and batch (from 0), and the sum of losses of the current epoch."""

    total: Tensor
    step: int = 0
    epoch: int = 0
    batch: int = 0
    count: int = 0

    def advance(self, value: Tensor) -> None:
        """Count one step with this loss."""
        self.total += value.double()
        self.step, self.batch, self.count = self.step + 1, self.batch + 1, self.count + 1

    def end_epoch(self) -> None:
        """Move to the first batch of the next epoch."""
        self.epoch, self.batch, self.count = self.epoch + 1, 0, 0
        self.total.zero_()


@dataclass(frozen=True)
class TrainingState:
    """The model and all other objects that a step changes.

    Args:
        model: the model without a wrapper.
        optimizer: its optimiser.
        ema: the moving average of its weights, if any.
        scaler: the loss scale of float16; disabled in other precisions.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    ema: ModelEmaV3 | None = None
    scaler: torch.amp.GradScaler = field(default_factory=lambda: torch.amp.GradScaler("cpu", enabled=False))

    def tensors(self) -> dict[str, Tensor]:
        """Returns all tensors of a checkpoint by name (collective)."""
        tensors = {f"model.{name}": full_tensor(tensor) for name, tensor in self.model.state_dict().items()}
        if self.ema is not None:
            tensors |= {f"ema.{name}": tensor for name, tensor in self.ema.module.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{key}.{name}"] = full_tensor(value)
        return tensors

    def settings(self, position: Position) -> dict[str, Any]:
        """Returns the metadata of a checkpoint; `Run.save_checkpoint` adds the step."""
        place = {"epoch": position.epoch, "batch": position.batch, "count": position.count}
        return {**place, "total": float(position.total), "scaler": self.scaler.state_dict()}

    def load(self, tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Position:
        """Restore a checkpoint in place; returns the position of the run."""
        for prefix, target in (("model.", self.model), ("ema.", self.ema.module if self.ema is not None else None)):
            if target is not None:
                for name, tensor in target.state_dict().items():
                    if tensor.numel():  # markers of parts have no elements, and are not in old checkpoints
                        load_full(tensor, tensors[prefix + name])
        for name, parameter in self.model.named_parameters():
            for key in ("step", "exp_avg", "exp_avg_sq", "momentum_buffer"):
                value = tensors.get(f"optimizer.{key}.{name}")
                if value is not None:
                    self.optimizer.state[parameter][key] = _like(value, parameter, key)
        if self.scaler.is_enabled() and settings.get("scaler"):  # not in checkpoints of earlier versions
            self.scaler.load_state_dict(settings["scaler"])
        device = next(self.model.parameters()).device
        total = torch.tensor(settings["total"], dtype=torch.float64, device=device)
        return Position(total, settings["step"], settings["epoch"], settings["batch"], settings["count"])

    def changing(self) -> list[Tensor]:
        """Returns all tensors that a step changes; tensors created by a step are appended."""
        tensors = list(self.model.state_dict().values())
        tensors += list(self.ema.module.state_dict().values()) if self.ema is not None else []
        return tensors + [v for state in self.optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]


def make_scaler(recipe: Recipe, device: torch.device) -> torch.amp.GradScaler:
    """Returns the gradient scaler for float16; disabled in other precisions."""
    return torch.amp.GradScaler(device.type, enabled=recipe.precision == "float16")


def make_state(recipe: Recipe, model: nn.Module, device: torch.device, ema: ModelEmaV3 | None = None) -> TrainingState:
    """Returns the state at the start of a run."""
    optimizer = make_optimizer(model, recipe.optimizer, device, recipe.image_size)
    return TrainingState(model, optimizer, ema, make_scaler(recipe, device))


def _like(value: Tensor, parameter: Tensor, key: str) -> Tensor:
    if key == "step":
        return value.to(parameter.device) if parameter.device.type == "cuda" else value
    empty = torch.empty_like(parameter)
    load_full(empty, value)
    return empty
