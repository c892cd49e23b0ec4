"""Indexing, label validation and hashing for all sets of labelled images.

Shape legend: N images.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from vitlab.core.errors import VitlabError

#: The label of an image without a known label: its set has no classes, or none that the model has.
UNLABELLED = -1


def as_rows(indices: Sequence[int] | Tensor) -> Tensor:
    """Returns indices as int64; for a boolean mask, those of its true values.

    >>> as_rows([4, 2]), as_rows(torch.tensor([False, True]))
    (tensor([4, 2]), tensor([1]))
    """
    rows = torch.as_tensor(indices)
    # A mask must not be interpreted as the indices 0 and 1.
    return rows.nonzero()[:, 0] if rows.dtype == torch.bool else rows.to(torch.int64)


def check_labels(labels: Tensor, classes: tuple[str, ...], count: int) -> None:
    """Raise unless labels are (N,) int64 and indices into `classes`."""
    if labels.dtype != torch.int64 or tuple(labels.shape) != (count,):
        raise VitlabError(f"labels are {labels.dtype} of shape {tuple(labels.shape)}; expected int64 of ({count},)")
    if not classes and bool((labels == UNLABELLED).all()):
        return
    if count and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
        raise VitlabError(
            f"labels range from {int(labels.min())} to {int(labels.max())}, but there are {len(classes)} classes; "
            "check that images and classes are of the same data set"
        )


def digest(*parts: Tensor | bytes) -> str:
    """Returns a hash of tensors and bytes, in this order."""
    state = blake2b(digest_size=8)
    for part in parts:
        block = part.contiguous().flatten().numpy() if isinstance(part, Tensor) else np.frombuffer(part, np.uint8)
        state.update(f"{block.nbytes}:".encode())  # otherwise ("ab", "c") and ("a", "bc") would be equal
        state.update(block.data)
    return state.hexdigest()
