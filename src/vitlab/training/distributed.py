"""From one process to many: the same code under `python` and under `torchrun`, nothing home-made but one BatchNorm."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from vitlab.core.errors import VitlabError
from vitlab.core.process import is_distributed
from vitlab.training.device import choose_device


@dataclass(frozen=True)
class World:
    """Who this process is among how many, and which device is its own."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def leads(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0


def init_distributed(device: str | None = None) -> World:
    """Join the processes that torchrun started, or stand alone.

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
    """Part from the other processes."""
    if world.size > 1 and dist.is_initialized():
        dist.destroy_process_group()


def sum_over_ranks(values: Tensor, world: World) -> Tensor:
    """The sum over all processes, on each of them."""
    if world.size > 1:
        dist.all_reduce(values)
    return values


def any_rank(wish: bool, world: World) -> bool:
    """Whether any process wishes it; all of them must ask."""
    if world.size == 1:
        return wish
    return bool(sum_over_ranks(torch.tensor(float(wish), device=world.device), world))


def wrap(model: nn.Module, world: World, sharded: bool) -> nn.Module:
    """Make a model one of many: DDP, or, for models that do not fit one device, `fully_shard` by block."""
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
    fully_shard(model)  # in place: the module's class changes
    return model


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor as one piece, wherever its shards are. All processes must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def load_full(tensor: Tensor, value: Tensor) -> None:
    """Copy a whole value into a tensor, of which this process may hold a shard only."""
    with torch.no_grad():
        if isinstance(tensor, DTensor):
            value = distribute_tensor(value.to(tensor.device, tensor.dtype), tensor.device_mesh, tensor.placements)
        tensor.copy_(value)


def synchronise_batch_norm(model: nn.Module) -> None:
    """Let every BatchNorm take its statistics over all processes, in place."""
    for path, module in model.named_modules():
        if not isinstance(module, nn.modules.batchnorm._BatchNorm) or isinstance(module, _SynchronisedBatchNorm):
            continue
        plain = type(module).forward is nn.modules.batchnorm._BatchNorm.forward
        if not plain and not (hasattr(module, "drop") and hasattr(module, "act")):
            raise VitlabError(f"{path} is a {type(module).__name__}, which cannot be synchronised over processes")
        module.__class__ = _SynchronisedBatchNorm


class _SynchronisedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """BatchNorm over the batch of all processes, on any device: torch's own SyncBatchNorm refuses the CPU.

    It takes over an existing module (by its class), so keys, parameters and hooks stay what they were. timm's
    BatchNormAct2d drops and activates as well; so does this, where the module has `drop` and `act`.
    """

    def _check_input_dim(self, x: Tensor) -> None:
        if x.ndim < 2:
            raise VitlabError(f"BatchNorm needs (B, C, ...), not a tensor of {x.ndim} axes")

    def forward(self, x: Tensor) -> Tensor:
        normal = self._normalised(x) if self.training and dist.is_initialized() else super().forward(x)
        for also in (getattr(self, "drop", None), getattr(self, "act", None)):
            normal = also(normal) if isinstance(also, nn.Module) else normal
        return normal

    def _normalised(self, x: Tensor) -> Tensor:
        axes = [axis for axis in range(x.ndim) if axis != 1]
        wide = x if x.dtype == torch.float64 else x.float()
        count = torch.full_like(wide[0, :1].flatten()[:1], x.numel() / x.shape[1])
        shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
        sums = dist_nn.all_reduce(torch.cat([wide.sum(axes), count]))
        mean = sums[:-1] / sums[-1]
        centred = wide - mean.view(shape)  # in two passes: E[x²] − E[x]² cancels where the mean is large
        variance = dist_nn.all_reduce(centred.square().sum(axes)) / sums[-1]
        self._remember(mean, variance, sums[-1])
        normal = centred * torch.rsqrt(variance.view(shape) + self.eps)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)  # type: ignore[arg-type]
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var.dtype), share)
