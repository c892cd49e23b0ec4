"""Context broadcasting: every token receives the mean of all tokens, which softmax attention hardly learns.

CB and its variants, from "Scratching Visual Transformer's Back with Uniform Attention" (CB), Sec. 3.2.

Shape legend: B batch, N tokens, D channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import TokenLayout
from vitlab.core.bounds import Range
from vitlab.core.errors import VitlabError, unknown
from vitlab.modules.identity_init import blend, initial_weight
from vitlab.modules.token_kinds import IMAGE, PADDING, TEXT, TokenKinds, subset_mean

__all__ = ["ContextBroadcast", "GatedContextBroadcast", "HybridContextBroadcast", "ScaledContextBroadcast"]


_Position = Annotated[int, Range(0, 10**6)]
Subset = Literal["image", "text", "each"] | tuple[_Position, _Position] | None

#: Subsets of the tokens of a model of text and images.
SUBSETS = ("image", "text", "each")


class ContextBroadcast(nn.Module):
    """CB: the average of each token and the mean of all tokens.

    CB(x_i) = x_i / 2 + (1 / 2N) Σ_j x_j (CB, Sec. 3.2). The mean includes prefix tokens, which also receive it: the
    paper's one line of code averages the whole sequence, and its "+0.9 M" FLOPs are 12 · 197 · 384.

    Args:
        tokens: the subset of the tokens that the mean is taken over and that receive it (CB, Table 10). None for all.
            In a model of text and images, which pads its sequences: `'image'` (patches and the image's class token),
            `'text'`, or `'each'` (text tokens receive the mean of the text tokens, image tokens that of the image
            tokens). None is then one joint mean over text and image. The paper does not say which of the two "both"
            is; one joint mean, which is CB on the whole sequence, is our choice. Padding is in no subset. In any
            model: positions `(start, stop)`, stop excluded.
        identity_init: multiply the change x_i → CB(x_i) by one learned weight that starts at 0, for trained weights.
        kinds: the kinds of the tokens, which `retrofit` fills in; None if the model has image tokens only.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> ContextBroadcast()(torch.tensor([[[0.0], [2.0], [4.0]]])).flatten()
    tensor([1., 2., 3.])
    >>> ContextBroadcast(tokens=(1, 3))(torch.tensor([[[0.0], [2.0], [4.0]]])).flatten()
    tensor([0.0000, 2.5000, 3.5000])
    """

    default_seam: ClassVar[str] = "mlp.out"
    weight: nn.Parameter | None

    def __init__(self, *, tokens: Subset = None, identity_init: bool = False, kinds: TokenKinds | None = None) -> None:
        super().__init__()
        self.tokens = _subset(tokens, type(self).__name__, kinds)
        self.kinds = kinds
        self.register_parameter("weight", initial_weight(identity_init))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        weight = self.weight
        return _within(self.tokens, self.kinds, lambda some, mean: blend(some, 0.5 * some + 0.5 * mean, weight), x)


class ScaledContextBroadcast(nn.Module):
    """CB_S: the mean of all tokens, scaled per channel by learned weights and added to each token.

    CB_S(x_i) = x_i + Λ ⊙ (1/N) Σ_j x_j with Λ in R^D and no factor 1/2 (CB, Sec. 3.2). D parameters: "0.02 %" of ViT-S
    is 12 · 384 of 22,050,664.

    Args:
        dim: D.
        init: initial value of Λ. The paper does not give it; 0 is our choice, so that the model is initially unchanged.
        tokens: as in `ContextBroadcast`.
        identity_init: requires `init=0`, which is the identity.
        kinds: as in `ContextBroadcast`.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> ScaledContextBroadcast(1, init=1.0)(torch.tensor([[[0.0], [2.0], [4.0]]])).flatten().tolist()
    [2.0, 4.0, 6.0]
    """

    default_seam: ClassVar[str] = "mlp.out"

    def __init__(
        self,
        dim: int,
        *,
        init: Annotated[float, Range(-(10**6), 10**6)] = 0.0,
        tokens: Subset = None,
        identity_init: bool = False,
        kinds: TokenKinds | None = None,
    ) -> None:
        super().__init__()
        if identity_init and init:
            raise VitlabError(f"init={init} of {type(self).__name__} is not the identity; omit it or identity_init")
        self.tokens = _subset(tokens, type(self).__name__, kinds)
        self.kinds = kinds
        self.scale = nn.Parameter(torch.full((dim,), float(init)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        # Under autocast x may be bfloat16 while Λ is float32: cast the D weights rather than promote all N · D tokens.
        scale = self.scale.to(x.dtype)
        return _within(self.tokens, self.kinds, lambda chosen, mean: chosen + scale * mean, x)


class GatedContextBroadcast(nn.Module):
    """CB_gate: every token is multiplied by the class token.

    CB_gate(x_i) = x_i ⊙ (x_0 + 1), x_0 the class token (CB, supplement, Table S5). The class token is gated by itself.

    Args:
        layout: must have a prefix; its first token is the class token.
        identity_init: multiply x_0 by one learned weight that starts at 0, for trained weights.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> GatedContextBroadcast(TokenLayout((1, 2), prefix=1))(torch.tensor([[[1.0], [2.0], [3.0]]])).flatten()
    tensor([2., 4., 6.])
    """

    default_seam: ClassVar[str] = "mlp.out"
    weight: nn.Parameter | None

    def __init__(self, layout: TokenLayout, *, identity_init: bool = False) -> None:
        super().__init__()
        _need_class_token(layout, type(self).__name__)
        self.register_parameter("weight", initial_weight(identity_init))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        return blend(x, x * (x[:, :1] + 1), self.weight)


class HybridContextBroadcast(nn.Module):
    """CB_hybrid: tokens multiplied by the class token, plus CB.

    CB_hybrid(x_i) = x_i ⊙ x_0 + CB(x_i), x_0 the class token (CB, supplement, Table S5). The paper reports that it
    diverges when inserted after both MLP and attention.

    Args:
        layout: must have a prefix; its first token is the class token.
        identity_init: as in `ContextBroadcast`.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> HybridContextBroadcast(TokenLayout((1, 2), prefix=1))(torch.tensor([[[1.0], [2.0], [3.0]]])).flatten()
    tensor([2.5000, 4.0000, 5.5000])
    """

    default_seam: ClassVar[str] = "mlp.out"
    weight: nn.Parameter | None

    def __init__(self, layout: TokenLayout, *, identity_init: bool = False) -> None:
        super().__init__()
        _need_class_token(layout, type(self).__name__)
        self.register_parameter("weight", initial_weight(identity_init))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        return blend(x, x * x[:, :1] + _broadcast(x), self.weight)


def _broadcast(x: Tensor) -> Tensor:
    return 0.5 * x + 0.5 * x.mean(dim=1, keepdim=True)


def _within(tokens: Subset, kinds: TokenKinds | None, mix: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply `mix(tokens, mean)` to the tokens of a subset, with their mean; the others are unchanged."""
    if isinstance(tokens, tuple):
        start, stop = tokens
        if stop > x.shape[1]:
            raise VitlabError(f"invalid tokens=({start}, {stop}); past the end of a sequence of {x.shape[1]} tokens")
        chosen = x[:, start:stop]
        return torch.cat((x[:, :start], mix(chosen, chosen.mean(dim=1, keepdim=True)), x[:, stop:]), dim=1)
    if kinds is None:
        _subset(tokens, "context broadcast", kinds)
        return mix(x, x.mean(dim=1, keepdim=True))
    current = kinds.of(x)
    if tokens == "each":
        members = current != PADDING
        is_text = (current == TEXT)[..., None]
        mean = torch.where(is_text, subset_mean(x, current == TEXT), subset_mean(x, current == IMAGE))
    else:
        members = current != PADDING if tokens is None else current == (TEXT if tokens == "text" else IMAGE)
        mean = subset_mean(x, members)
    return torch.where(members[..., None], mix(x, mean), x)


def _subset(tokens: Subset, part: str, kinds: TokenKinds | None) -> Subset:
    """Returns the subset, checked."""
    if tokens is None:
        return None
    if isinstance(tokens, str):
        if tokens not in SUBSETS:
            raise unknown(f"tokens of {part}", tokens, SUBSETS)
        if kinds is None:
            raise VitlabError(
                f"invalid tokens={tokens!r} of {part}: the model does not have both text and image tokens; omit tokens"
            )
        return tokens
    pair = isinstance(tokens, (tuple, list)) and len(tokens) == 2
    if not pair or not all(isinstance(place, int) for place in tokens) or not 0 <= tokens[0] < tokens[1]:
        raise VitlabError(
            f"invalid tokens={tokens!r} of {part}; expected (start, stop) with 0 <= start < stop, one of "
            f"{', '.join(map(repr, SUBSETS))}, or None for all"
        )
    return (tokens[0], tokens[1])


def _need_class_token(layout: TokenLayout, part: str) -> None:
    if layout.prefix == 0:
        raise VitlabError(
            f"{part} multiplies by the class token, but there is no prefix token here; use ContextBroadcast"
        )
