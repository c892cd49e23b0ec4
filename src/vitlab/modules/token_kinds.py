"""The kinds of the tokens of a sequence that joins text and image: how a part learns which tokens it may use.

A part sees tokens (B, N, D) only. In a model of text and images, the number of text tokens and the padding differ
between batches, so that a fixed range of positions is wrong. A part with the constructor parameter `kinds` receives a
`TokenKinds` from `retrofit`, or None if the model has image tokens only. All parts of a model share one `TokenKinds`,
which a hook on the module that joins the tokens updates in every forward. It is a child module of the parts and of
that module, so that copies, pickles and wrappers of the model have their own. The kinds are a plain attribute, not a
buffer: they are not part of the state dict, and DDP does not broadcast them.

Shape legend: B batch, N tokens, D channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.core.errors import VitlabError

__all__: list[str] = []

PADDING, TEXT, IMAGE = 0, 1, 2

#: Reads the kinds (B, N) from the arguments, the keyword arguments and the output of a module.
Reader = Callable[[tuple[Any, ...], Mapping[str, Any], Any], Tensor]


class TokenKinds(nn.Module):
    """The kind of each token of the current forward: padding, text or image.

    Args:
        read: reads the kinds from a call of the module that joins the tokens; a module-level function, so that the
            model can be pickled.

    >>> kinds = TokenKinds()
    >>> kinds.set(torch.tensor([[TEXT, PADDING, IMAGE]]))
    >>> kinds.of(torch.zeros(1, 3, 8))
    tensor([[1, 0, 2]])
    """

    def __init__(self, read: Reader | None = None) -> None:
        super().__init__()
        self._read = read
        self._current: Tensor | None = None

    def set(self, kinds: Tensor) -> None:
        """Set the kinds (B, N) of the current forward."""
        self._current = kinds

    def update(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any], output: Any) -> None:
        """Set the kinds from a call of the module that joins the tokens."""
        if self._read is not None:
            self._current = self._read(arguments, keywords, output)

    def of(self, x: Tensor) -> Tensor:
        """Returns the kinds (B, N) of tokens (B, N, D)."""
        if self._current is None or self._current.shape != x.shape[:2]:
            known = "none" if self._current is None else f"those of {tuple(self._current.shape)}"
            raise VitlabError(
                f"the kinds of {tuple(x.shape[:2])} tokens are not known ({known} are); run the whole model, not a part"
            )
        return self._current


def subset_mean(x: Tensor, members: Tensor) -> Tensor:
    """Returns the mean over the member tokens of each sample, (B, 1, D); 0 if it has none.

    Args:
        x: (B, N, D).
        members: (B, N) bool.

    >>> subset_mean(torch.tensor([[[1.0], [3.0], [8.0]]]), torch.tensor([[True, True, False]])).item()
    2.0
    """
    total = torch.where(members[..., None], x, 0).sum(dim=1, keepdim=True)
    return total / members.sum(dim=1).clamp(min=1)[:, None, None].to(total.dtype)
