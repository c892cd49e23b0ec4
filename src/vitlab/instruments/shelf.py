"""What an observer keeps of a pass until its end: on the device while it is little, then in main memory."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

_ROOM = 8 << 20  # bytes on the device: moving less at a time would wait for it too often


class Shelf:
    """Tensors by name, in the order in which they came.

    >>> import torch
    >>> shelf = Shelf(["blocks.0"])
    >>> shelf.put("blocks.0", torch.ones(2))
    >>> shelf.take("blocks.0"), "blocks.1" in shelf
    ([tensor([1., 1.])], False)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._tensors: dict[str, list[Tensor]] = {name: [] for name in names}
        self._held = 0

    def __contains__(self, name: str) -> bool:
        """Whether there is room for this name."""
        return name in self._tensors

    def put(self, name: str, tensor: Tensor) -> None:
        """One more; when the device holds too much, all of it moves."""
        self._tensors[name].append(tensor)
        self._held += 0 if tensor.device.type == "cpu" else tensor.nbytes
        if self._held > _ROOM:
            for tensors in self._tensors.values():
                tensors[:] = [each.cpu() for each in tensors]
            self._held = 0

    def take(self, name: str) -> list[Tensor]:
        """All that came, each where it is now."""
        return list(self._tensors[name])
