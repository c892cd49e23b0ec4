"""Asynchronous copies of small tensors from the host to the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["per_channel", "to_device"]


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a host tensor to a device, on CUDA through pinned memory: a pageable copy would wait for all queued work.

    >>> to_device(torch.ones(1), torch.device("cpu"))
    tensor([1.])
    """
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def per_channel(values: Sequence[float], device: torch.device) -> Tensor:
    """Returns one number per channel as (C, 1, 1) float32, to be broadcast over images.

    >>> per_channel((0.5, 0.25), torch.device("cpu")).shape
    torch.Size([2, 1, 1])
    """
    return to_device(torch.tensor(values, dtype=torch.float32), device)[:, None, None]
