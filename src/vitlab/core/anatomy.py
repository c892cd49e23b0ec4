"""A model, described as data: where its tokens lie, what mixes them, and where a part can go.

Nothing here imports torch; adapters fill these types, `surgery` and `recording` act on them.

Shape legend: B batch, N tokens, D channels, h w grid, T windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vitlab.core.errors import VitlabError, unknown

Order = Literal["BND", "BDN", "BHWD", "BCHW", "BTND"]
Side = Literal["in", "out", "replace"]

#: Where a part can go: a closed vocabulary. `attn.in` is the input of the attention branch (skip path untouched),
#: `attn` replaces the attention module, `mlp.in`/`mlp.mid`/`mlp.out` are Front/Mid/End of the CB paper.
SEAMS = ("attn.in", "attn", "attn.out", "mlp.in", "mlp.mid", "mlp.out", "block.out", "stage.out")

#: Where the residual stream can be read (never changed): at the start of a block, between its two halves, at its end.
TAPS = ("block.in", "block.mid", "block.out")


@dataclass(frozen=True)
class TokenLayout:
    """How tokens lie in a tensor.

    Args:
        grid: rows and columns of the full token map, (h, w).
        prefix: tokens before the grid (class, distillation, register tokens). They stay in front.
        order: the axes. `BND` tokens, `BDN` channels first, `BHWD` and `BCHW` maps, `BTND` windows on their own axis.
        windows: how many sequences one image is cut into; in `BND` they are folded into the batch, windows fastest.
        permutation: for tokens that are not row-major, the row-major grid index of each token as it lies
            (window after window); None means row-major, () an order that is not known (windows that pad the map, or
            a model that shuffles its patches).

    >>> TokenLayout((14, 14), prefix=1).tokens
    197
    """

    grid: tuple[int, int]
    prefix: int = 0
    order: Order = "BND"
    windows: int = 1
    permutation: tuple[int, ...] | None = None

    @property
    def tokens(self) -> int:
        """Tokens of one image, the prefix included."""
        return self.prefix + self.grid[0] * self.grid[1]

    @property
    def shuffled(self) -> bool:
        """Whether all tokens of an image lie together, in an order that is not known."""
        return self.permutation == () and self.windows == 1

    def check(self, tokens: int, who: str) -> None:
        """Refuse a sequence that cannot be this grid: N must be h·w + prefix."""
        if tokens != self.tokens:
            h, w = self.grid
            raise VitlabError(
                f"{who} was fitted for a {h}x{w} grid and {self.prefix} prefix token(s), that is {self.tokens} tokens, "
                f"but got {tokens}; retrofit again with input_size= set to the size that you feed"
            )


def window_permutation(
    grid: tuple[int, int], window: tuple[int, int], shift: tuple[int, int] = (0, 0), dilated: bool = False
) -> tuple[int, ...]:
    """The order of tokens after a (shifted) window partition; () where the windows do not tile the grid.

    `shift` is the cyclic shift of Swin (the map is rolled by minus it before it is cut); `dilated` cuts MaxViT's grid
    partition, whose tokens stand `h / window` apart.

    >>> window_permutation((2, 4), (2, 2))
    (0, 1, 4, 5, 2, 3, 6, 7)
    >>> window_permutation((2, 4), (2, 2), dilated=True)
    (0, 2, 4, 6, 1, 3, 5, 7)
    >>> window_permutation((1, 4), (1, 2), shift=(0, 1))
    (1, 2, 3, 0)
    """
    (h, w), (p, q) = grid, window
    if h % p or w % q:
        return ()
    rows, columns = h // p, w // q
    order = []
    for i in range(rows):
        for j in range(columns):
            for a in range(p):
                for b in range(q):
                    y, x = (a * rows + i, b * columns + j) if dilated else (i * p + a, j * q + b)
                    order.append((y + shift[0]) % h * w + (x + shift[1]) % w)
    return tuple(order)


@dataclass(frozen=True)
class Seam:
    """A place where a part can go: the hooked module, which side of it, how tokens lie there, how wide they are."""

    name: str
    path: str
    side: Side
    layout: TokenLayout
    dim: int


@dataclass(frozen=True)
class Mixer:
    """What mixes the tokens of a block, and how its map can be read.

    Args:
        kind: `attention`, `window attention`, `class attention`, `channel attention`, `mlp`, `conv` or `pooling`.
        path: the module in which the mixing happens.
        queries: how the rows of the map lie; None where there is no token-token map.
        keys: how its columns lie (rectangular in PVT and MViT).
        map_at: the module whose input is the true map, where that is not the softmax (ConViT).
        why_no_map: the reason, in one sentence, where there is no token-token map.
        window_axis: where windows have an axis of their own in a five-dimensional map, which one it is:
            2 for (B, H, T, n, m), 1 for (B, T, H, n, m).
    """

    kind: str
    path: str
    queries: TokenLayout | None = None
    keys: TokenLayout | None = None
    map_at: str | None = None
    why_no_map: str | None = None
    window_axis: int = 2


@dataclass(frozen=True)
class Block:
    """One token mixer with its MLP. MaxViT and TNT have two blocks per layer."""

    name: str
    index: int
    stage: int
    mixer: Mixer
    seams: tuple[Seam, ...] = ()
    taps: tuple[Seam, ...] = ()

    def seam(self, name: str) -> Seam | None:
        """The seam of that name, or None where this block does not offer it."""
        return next((seam for seam in self.seams if seam.name == name), None)

    def tap(self, name: str) -> Seam | None:
        """The readable place of that name: a tap, or else a seam."""
        return next((place for place in self.taps + self.seams if place.name == name), None)


@dataclass(frozen=True)
class Anatomy:
    """A model, described: its family and its blocks in execution order.

    `absent` says why a seam that others have is missing here.
    """

    family: str
    blocks: tuple[Block, ...]
    input_size: tuple[int, int]
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def seams(self) -> tuple[str, ...]:
        """The names of all seams that at least one block offers, in the order of `SEAMS`."""
        offered = {seam.name for block in self.blocks for seam in block.seams}
        return tuple(name for name in SEAMS if name in offered)

    def block(self, name: str) -> Block:
        """The block of that name."""
        for block in self.blocks:
            if block.name == name:
                return block
        raise unknown(f"block of family {self.family!r}", name, [block.name for block in self.blocks])
