"""The order of the images in an epoch, and test images at even distances.

Shape legend: n images, M positions of an epoch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.data.seeding import seeded_generator

__all__ = ["check_batch_size", "epoch_order", "evenly"]

_ROUND = 256


def check_batch_size(batch_size: int, world: int) -> None:
    """Raise an error if a batch cannot be divided equally over the processes."""
    if batch_size % world:
        raise VitlabError(f"invalid batch_size={batch_size}; expected a multiple of the {world} processes")


def epoch_order(count: int, epoch: int, seed: int, repeats: int = 1, rank: int = 0, world: int = 1) -> Tensor:
    """Returns the indices of one process in an epoch; a pure function of its arguments.

    Position j of the global order belongs to process j mod `world`, as in torch's and timm's samplers: the first
    b indices of each process together are the first b · world of the whole. Repeated augmentation (Hoffer et al., and
    DeiT's RASampler, timm's RepeatAugSampler): each image occurs `repeats` times in a row, so that its copies are in
    one global batch and, with several processes, on different ranks; the epoch keeps its length, rounded down to a
    multiple of 256 as there, and so contains only 1 / `repeats` of the images. Under 256 images nothing is rounded.

    Args:
        count: n.
        epoch, seed: select the permutation.
        repeats: how often each image occurs in the epoch.
        rank, world: rank of this process and number of processes.

    Returns:
        (M,) int64 on the CPU, the same M for every process: the remainder is dropped.

    >>> sorted(epoch_order(5, epoch=0, seed=0).tolist())
    [0, 1, 2, 3, 4]
    >>> whole = epoch_order(300, 7, 0, repeats=3)
    >>> len(whole), bool((whole[0] == whole[1]) and (whole[1] == whole[2]))
    (256, True)
    >>> bool((epoch_order(300, 7, 0, repeats=3, rank=1, world=2) == whole[1::2]).all())
    True
    """
    if count < 1 or repeats < 1 or not 0 <= rank < world:
        raise VitlabError(
            f"invalid count={count}, repeats={repeats}, rank={rank}, world={world};"
            " expected count and repeats of at least 1, and 0 <= rank < world"
        )
    permutation = torch.randperm(count, generator=seeded_generator("cpu", "order", seed, epoch))
    length = count // _ROUND * _ROUND if repeats > 1 and count >= _ROUND else count
    copies = permutation[: -(-length // repeats)].repeat_interleave(repeats)[:length]
    return copies[rank : length // world * world : world]


def evenly(count: int, wanted: int) -> Tensor:
    """Returns the indices of `wanted` of `count` images at even distances; of all if 0, or if there are not as many.

    >>> evenly(10, 4).tolist(), evenly(3, 0).tolist(), evenly(3, 8).tolist()
    ([0, 2, 5, 7], [0, 1, 2], [0, 1, 2])
    """
    number = min(wanted, count) or count
    return torch.arange(number) * count // number
