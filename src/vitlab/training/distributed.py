"""Distributed training: the same code runs in one process and under `torchrun`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from vitlab.core.errors import VitlabError
from vitlab.core.process import is_distributed
from vitlab.training.device import choose_device

Result = TypeVar("Result")


@dataclass(frozen=True)
class World:
    """Rank of this process, world size, and device."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.rank == 0


def init_distributed(device: str | None = None) -> World:
    """Initialise the process group if torchrun started this process.

    Args:
        device: see `choose_device`.
    """
    kind = choose_device(device)
    if not is_distributed():
        return World(device=torch.device(kind))
    own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if kind == "cuda" else torch.device(kind)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if own.type == "cuda" else "gloo")
    return World(dist.get_rank(), dist.get_world_size(), own)


def shutdown(world: World) -> None:
    """Destroy the process group."""
    if world.size > 1 and dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def process_group(device: str | None = None) -> Iterator[World]:
    """Context manager: `init_distributed`, then `shutdown` on exit. Ranks other than 0 show no warnings.

    Args:
        device: see `choose_device`.
    """
    world = init_distributed(device)
    try:
        with nullcontext() if world.is_main else warnings.catch_warnings():
            if not world.is_main:
                warnings.simplefilter("ignore")
            yield world
    finally:
        shutdown(world)


def sum_over_ranks(values: Tensor, world: World) -> Tensor:
    """All-reduce sum over ranks, in place (collective)."""
    if world.size > 1:
        dist.all_reduce(values)
    return values


def any_rank(value: bool, world: World) -> bool:
    """Logical OR over ranks (collective)."""
    if world.size == 1:
        return value
    return bool(sum_over_ranks(torch.tensor(float(value), device=world.device), world))


def main_first(function: Callable[[], Result], world: World) -> Result:
    """Call a function on rank 0, and when it has returned, on all other ranks (collective)."""
    if not world.is_main:
        any_rank(False, world)  # a barrier
        return function()
    result = function()
    any_rank(False, world)
    return result


def wrap(model: nn.Module, world: World, sharded: bool) -> nn.Module:
    """Wrap a model with DDP, or, for models that do not fit on one device, with `fully_shard` per block."""
    if world.size == 1:
        return model
    synchronise_batch_norm(model)
    if not sharded:
        return DistributedDataParallel(model, device_ids=[world.device] if world.device.type == "cuda" else None)
    from torch.distributed.fsdp import fully_shard

    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            for block in module:
                fully_shard(block)
    fully_shard(model)  # in place: changes the class of the module
    return model


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor (collective); other tensors are returned unchanged."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def load_full(tensor: Tensor, value: Tensor) -> None:
    """Copy a full tensor into a tensor that may be sharded."""
    with torch.no_grad():
        if isinstance(tensor, DTensor):
            value = distribute_tensor(value.to(tensor.device, tensor.dtype), tensor.device_mesh, tensor.placements)
        tensor.copy_(value)


def synchronise_batch_norm(model: nn.Module) -> None:
    """Make every BatchNorm of a model compute its statistics over all ranks, in place."""
    for path, module in model.named_modules():
        if not isinstance(module, nn.modules.batchnorm._BatchNorm) or isinstance(module, _SynchronisedBatchNorm):
            continue
        plain = type(module).forward is nn.modules.batchnorm._BatchNorm.forward
        if not plain and not (hasattr(module, "drop") and hasattr(module, "act")):
            raise VitlabError(
                f"{path} is a {type(module).__name__}, which cannot be synchronised over ranks; train in one process"
            )
        module.__class__ = _SynchronisedBatchNorm


class _SynchronisedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """BatchNorm over the batch of all ranks, on any device; torch's SyncBatchNorm does not support the CPU.

    It replaces the class of an existing module, so that keys, parameters and hooks do not change. If the module has
    `drop` and `act`, as timm's BatchNormAct2d, they are applied to the output.
    """

    def _check_input_dim(self, x: Tensor) -> None:
        if x.ndim < 2:
            raise VitlabError(f"BatchNorm expects an input of shape (B, C, ...), got {x.ndim} dimension(s)")

    def forward(self, x: Tensor) -> Tensor:
        y = self._normalised(x) if self.training and dist.is_initialized() else super().forward(x)
        for layer in (getattr(self, "drop", None), getattr(self, "act", None)):
            y = layer(y) if isinstance(layer, nn.Module) else y
        return y

    def _normalised(self, x: Tensor) -> Tensor:
        axes = [axis for axis in range(x.ndim) if axis != 1]
        wide = x if x.dtype == torch.float64 else x.float()
        count = torch.full_like(wide[0, :1].flatten()[:1], x.numel() / x.shape[1])
        shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
        sums = dist_nn.all_reduce(torch.cat([wide.sum(axes), count]))
        mean = sums[:-1] / sums[-1]
        centred = wide - mean.view(shape)  # two passes, because E[x²] − E[x]² loses precision for a large mean
        variance = dist_nn.all_reduce(centred.square().sum(axes)) / sums[-1]
        self._update_running(mean, variance, sums[-1])
        y: Tensor = centred * torch.rsqrt(variance.view(shape) + self.eps)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.to(x.dtype)

    @torch.no_grad()
    def _update_running(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        weight = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)  # type: ignore[arg-type]
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
        self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var.dtype), weight)
