"""What an observer keeps of a pass until its end: on the device while it is little, then in main memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

_ROOM = 32 << 20  # bytes on the device, and of a piece of pinned memory, which comes in powers of two


class DeviceBuffer:
    """Tensors by name, in the order in which they came.

    >>> shelf = DeviceBuffer(["blocks.0"])
    >>> shelf.put("blocks.0", torch.ones(2))
    >>> shelf.take("blocks.0"), "blocks.1" in shelf
    ([tensor([1., 1.])], False)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._tensors: dict[str, list[Tensor]] = {name: [] for name in names}
        self._away: list[tuple[list[Tensor], int]] = []  # where those stand that are on the device
        self._held = 0
        self._arrived: torch.cuda.Event | None = None  # of what was last sent to main memory

    def __contains__(self, name: str) -> bool:
        """Whether there is room for this name."""
        return name in self._tensors

    def put(self, name: str, tensor: Tensor) -> None:
        """One more; where the device would hold too much, what it holds moves first."""
        row = self._tensors[name]
        if tensor.device.type != "cpu":
            if self._away and self._held + tensor.nbytes > _ROOM:
                self._move()
            self._away.append((row, len(row)))
            self._held += tensor.nbytes
        row.append(tensor)

    def take(self, name: str) -> list[Tensor]:
        """All that came, each where it is now."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return list(self._tensors[name])

    def _move(self) -> None:
        """To main memory, in one trip that nobody waits for where the memory is pinned."""
        tensors = [row[i] for row, i in self._away]
        line = torch.cat([tensor.reshape(-1) for tensor in tensors])
        here = torch.empty_like(line, device="cpu", pin_memory=line.is_cuda).copy_(line, non_blocking=line.is_cuda)
        if line.is_cuda:
            self._arrived = torch.cuda.current_stream(line.device).record_event()
        for (row, i), tensor, part in zip(self._away, tensors, _split(here, tensors), strict=True):
            row[i] = part.reshape(tensor.shape)
        self._away, self._held = [], 0


def fetch(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Tensors of any shapes, of one type, as arrays of float64: those of a device in one trip, which waits for it.

    What is left to do with some thousand numbers is numpy's: torch would wake all its threads for it.

    >>> [array.tolist() for array in fetch([torch.ones(1, 2), torch.zeros(1)])]
    [[[1.0, 1.0]], [0.0]]
    """
    away = [tensor for tensor in tensors if tensor.device.type != "cpu"]
    parts = iter(_split(torch.cat([tensor.reshape(-1) for tensor in away]).cpu(), away) if away else ())
    here = [tensor if tensor.device.type == "cpu" else next(parts).reshape(tensor.shape) for tensor in tensors]
    return [tensor.numpy().astype(np.float64) for tensor in here]


def _split(line: Tensor, like: Sequence[Tensor]) -> Sequence[Tensor]:
    return torch.split(line, [tensor.numel() for tensor in like])
