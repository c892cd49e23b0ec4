"""Identity initialisation of parts without parameters of their own: a learned weight that starts at zero.

A part inserted into trained weights changes what they compute. With `identity_init=True` the output of a part is at
first its input, and training decides how much the part does. Parts whose own parameters can give the identity are
initialised so, and others have one weight more:

    y = x + w (part(x) − x), w = 0 at first.

w = 1 is the part of the paper. w is learned, not scheduled: a forward then has no side effects, the number of steps
need not be known, and the learned value shows how much of the part the data supports.

Shape legend: B batch, N tokens, D channels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__: list[str] = []


def initial_weight(identity_init: bool) -> nn.Parameter | None:
    """Returns w, of shape (1,) since `fully_shard` supports no scalars; None without identity initialisation.

    >>> initial_weight(True), initial_weight(False)
    (Parameter containing:
    tensor([0.], requires_grad=True), None)
    """
    return nn.Parameter(torch.zeros(1)) if identity_init else None


def blend(x: Tensor, mixed: Tensor, weight: Tensor | None) -> Tensor:
    """Returns x + w (mixed − x), and `mixed` if there is no weight.

    >>> blend(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([0.5]))
    tensor([2.])
    """
    return mixed if weight is None else x + weight.to(x.dtype) * (mixed - x)
