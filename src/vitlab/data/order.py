"""In which order an epoch walks through the images.

Shape legend: n images, M places of an epoch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.data.seeding import seeded_generator

__all__ = ["epoch_order"]

_ROUND = 256


def epoch_order(count: int, epoch: int, seed: int, repeats: int = 1, rank: int = 0, world: int = 1) -> Tensor:
    """The indices that one process takes in an epoch; a function of its arguments and of nothing else.

    Place j of the order of all processes belongs to process j mod `world`, as in torch's and timm's samplers: the first
    b indices of each process together are the first b · world of the whole. Repeated augmentation (Hoffer et al., and
    DeiT's RASampler, timm's RepeatAugSampler): each image stands `repeats` times in a row, so that its copies share a
    global batch and, with several processes, lie on different ones; the epoch keeps its length, rounded down to a
    multiple of 256 as there, and so shows only 1 / `repeats` of the images. Under 256 images nothing is rounded.

    Args:
        count: n.
        epoch, seed: name the permutation.
        repeats: how often each image stands in the epoch.
        rank, world: which process of how many.

    Returns:
        (M,) int64 on the CPU, the same M for every process: what does not divide evenly is left out.

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
            f"epoch_order got count={count}, repeats={repeats}, rank={rank}, world={world};"
            " expected count and repeats of at least 1, and 0 <= rank < world"
        )
    permutation = torch.randperm(count, generator=seeded_generator("cpu", "order", seed, epoch))
    kept = count // _ROUND * _ROUND if repeats > 1 and count >= _ROUND else count
    copies = permutation[: -(-kept // repeats)].repeat_interleave(repeats)[:kept]
    return copies[rank : kept // world * world : world]
