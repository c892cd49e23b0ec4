"""Batches that worker processes read. An error of a file reaches the user as one line.

PyTorch raises the exception of a worker again with the worker's traceback in its message. Workers therefore return a
`VitlabError` instead of raising it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from vitlab.core.errors import VitlabError

__all__ = ["read_batches"]


def read_batches(
    items: Dataset[Any],
    plan: Sequence[Any],
    collate: Callable[[list[Any]], Any],
    processes: int,
    pinned: bool = False,
) -> Iterator[Any]:
    """Yields a batch for each list of indices.

    Args:
        items: reads one item.
        plan: the indices of each batch.
        collate: makes a batch of a list of items.
        processes: number of worker processes; 0 reads in this process.
        pinned: whether tensors are in pinned memory.

    >>> list(read_batches([1, 2, 3], [[0, 1], [2]], sum, processes=0))
    [3, 3]
    """
    loader: DataLoader[Any] = DataLoader(
        _Guarded(items),
        batch_sampler=plan,
        num_workers=processes,
        collate_fn=_Collate(collate),
        pin_memory=pinned,
        generator=torch.Generator(),  # otherwise the loader draws from the global generator
    )
    for batch in loader:
        if isinstance(batch, VitlabError):
            raise batch
        yield batch


@dataclass(frozen=True)
class _Guarded(Dataset[Any]):
    """Items, or the error of reading one."""

    items: Dataset[Any]

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.items[index]
        except VitlabError as error:
            return error


@dataclass(frozen=True)
class _Collate:
    """The batch, or the first error of its items."""

    collate: Callable[[list[Any]], Any]

    def __call__(self, items: list[Any]) -> Any:
        failed = next((item for item in items if isinstance(item, VitlabError)), None)
        return self.collate(items) if failed is None else failed
