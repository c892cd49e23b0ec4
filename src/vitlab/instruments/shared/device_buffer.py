"""Buffer of intermediate tensors of a pass: on the device up to a limit, then in host memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

#: Maximum bytes on the device; also the size of a pinned allocation, which is rounded up to a power of two.
_MAX_DEVICE_BYTES = 32 << 20


class DeviceBuffer:
    """Lists of tensors by name, in insertion order.

    >>> buffer = DeviceBuffer(["blocks.0"])
    >>> buffer.put("blocks.0", torch.ones(2))
    >>> buffer.get("blocks.0"), "blocks.1" in buffer
    ([tensor([1., 1.])], False)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._tensors: dict[str, list[Tensor]] = {name: [] for name in names}
        self._on_device: list[tuple[list[Tensor], int]] = []  # list and index of each tensor on the device
        self._device_bytes = 0
        self._copied: torch.cuda.Event | None = None  # end of the last copy to host memory

    def __contains__(self, name: str) -> bool:
        """Whether the buffer has this name."""
        return name in self._tensors

    def put(self, name: str, tensor: Tensor) -> None:
        """Append a tensor; first move the buffer to host memory if it would exceed the device limit."""
        tensors = self._tensors[name]
        if tensor.device.type != "cpu":
            if self._on_device and self._device_bytes + tensor.nbytes > _MAX_DEVICE_BYTES:
                self._move_to_host()
            self._on_device.append((tensors, len(tensors)))
            self._device_bytes += tensor.nbytes
        tensors.append(tensor)

    def get(self, name: str) -> list[Tensor]:
        """All tensors of a name, each on its current device."""
        if self._copied is not None:
            self._copied.synchronize()
        return list(self._tensors[name])

    def _move_to_host(self) -> None:
        """Move all device tensors to host memory in one copy, asynchronous where the memory is pinned."""
        tensors = [row[i] for row, i in self._on_device]
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        host = torch.empty_like(flat, device="cpu", pin_memory=flat.is_cuda).copy_(flat, non_blocking=flat.is_cuda)
        if flat.is_cuda:
            self._copied = torch.cuda.current_stream(flat.device).record_event()
        for (row, i), tensor, part in zip(self._on_device, tensors, _split(host, tensors), strict=True):
            row[i] = part.reshape(tensor.shape)
        self._on_device, self._device_bytes = [], 0


def fetch(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Copy tensors of one dtype and any shapes to float64 arrays; device tensors in one synchronous copy.

    NumPy processes the few thousand numbers that remain: torch would start all its threads for them.

    >>> [array.tolist() for array in fetch([torch.ones(1, 2), torch.zeros(1)])]
    [[[1.0, 1.0]], [0.0]]
    """
    on_device = [tensor for tensor in tensors if tensor.device.type != "cpu"]
    parts = iter(_split(torch.cat([tensor.reshape(-1) for tensor in on_device]).cpu(), on_device) if on_device else ())
    host = [tensor if tensor.device.type == "cpu" else next(parts).reshape(tensor.shape) for tensor in tensors]
    return [tensor.numpy().astype(np.float64) for tensor in host]


def _split(flat: Tensor, like: Sequence[Tensor]) -> Sequence[Tensor]:
    return torch.split(flat, [tensor.numel() for tensor in like])
