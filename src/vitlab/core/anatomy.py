"""Description of a model as data: token layouts, token mixers, and the places where a part can be inserted.

Adapters create these types; `surgery` and `recording` use them.

Shape legend: B batch, N tokens, D channels, h w grid, T windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Literal

from vitlab.core.errors import VitlabError, unknown

Order = Literal["BND", "BDN", "BHWD", "BCHW", "BTND"]
Side = Literal["in", "out", "replace"]

#: All names of places where a part can be inserted. `attn.in` is the input of the attention branch (not of the skip
#: connection), `attn` replaces the attention module, `mlp.in`/`mlp.mid`/`mlp.out` are Front/Mid/End of the CB paper.
SEAMS = ("attn.in", "attn", "attn.out", "mlp.in", "mlp.mid", "mlp.out", "block.out", "stage.out")

#: Places where the residual stream can be read: at the start of a block, between its two halves, and at its end.
TAPS = ("block.in", "block.mid", "block.out")


@dataclass(frozen=True)
class TokenLayout:
    """The layout of the tokens in a tensor.

    Args:
        grid: rows and columns of the full token map, (h, w).
        prefix: number of tokens outside the grid (class, distillation and register tokens), which are before it.
        order: the axes. `BND` tokens, `BDN` channels first, `BHWD` and `BCHW` maps, `BTND` windows on their own axis.
        windows: number of windows that one image is split into; in `BND` they are folded into the batch axis, the
            window index varying fastest.
        permutation: the row-major grid index of each token, window after window; None if the tokens are in row-major
            order, () if the order is not known (windows that pad the map, or a model that shuffles its patches).
        varying: whether the number of prefix tokens varies between batches, as that of text tokens; `prefix` is then an
            example.
        suffix: how many of the prefix tokens are after the grid in the tensor (detection tokens); `permutation` is then
            given. In full-map order they are before it.

    >>> TokenLayout((14, 14), prefix=1).tokens
    197
    """

    grid: tuple[int, int]
    prefix: int = 0
    order: Order = "BND"
    windows: int = 1
    permutation: tuple[int, ...] | None = None
    varying: bool = False
    suffix: int = 0

    @property
    def tokens(self) -> int:
        """Number of tokens of one image, including the prefix."""
        return self.prefix + self.grid[0] * self.grid[1]

    @property
    def shuffled(self) -> bool:
        """Whether an image is one sequence whose token order is not known."""
        return self.permutation == () and self.windows == 1

    def check(self, tokens: int, name: str) -> None:
        """Raise an error if the number of tokens is not h·w + prefix.

        Args:
            tokens: N of the input.
            name: of the part or place, for the error message.
        """
        if tokens != self.tokens:
            h, w = self.grid
            raise VitlabError(
                f"{name} was fitted for a {h}x{w} grid and {self.prefix} prefix token(s), that is {self.tokens} "
                f"tokens, but got {tokens}; retrofit again with input_size= set to the size of the images"
            )


def window_permutation(
    grid: tuple[int, int], window: tuple[int, int], shift: tuple[int, int] = (0, 0), dilated: bool = False
) -> tuple[int, ...]:
    """Returns the token order of a (shifted) window partition, or () if the windows do not tile the grid.

    `shift` is the cyclic shift of Swin (the map is rolled by `-shift` before the partition). `dilated` is the grid
    partition of MaxViT, whose tokens are `h / window` apart.

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
    """A place where a part can be inserted: the hooked module, its side, the token layout and the channels."""

    name: str
    path: str
    side: Side
    layout: TokenLayout
    dim: int


@dataclass(frozen=True)
class Mixer:
    """The token mixer of a block, and how its attention map can be read.

    Args:
        kind: `attention`, `window attention`, `class attention`, `channel attention`, `mlp`, `conv` or `pooling`.
        path: the module that mixes the tokens.
        queries: layout of the rows of the map; None if there is no token-token map.
        keys: layout of its columns (maps of PVT and MViT are rectangular).
        map_at: the module whose input is the attention map, if it is not the output of the softmax (ConViT).
        why_no_map: the reason why there is no token-token map, in one sentence.
        window_axis: the axis of the windows in a five-dimensional map: 2 for (B, H, T, n, m), 1 for (B, T, H, n, m).
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
        """Returns the seam of that name, or None if the block does not have it."""
        return next((seam for seam in self.seams if seam.name == name), None)

    def tap(self, name: str) -> Seam | None:
        """Returns the tap of that name, or the seam if there is no such tap; None if there is neither."""
        return next((place for place in self.taps + self.seams if place.name == name), None)


@dataclass(frozen=True)
class Anatomy:
    """The description of a model: its family and its blocks in execution order.

    `absent` maps seams that this family does not have to the reason. `stem` has the outputs of convolutional stages
    before the first block. `tapped` has the names of the blocks of an assembly's backbone whose outputs feed its neck.
    """

    family: str
    blocks: tuple[Block, ...]
    input_size: tuple[int, int]
    absent: Mapping[str, str] = field(default_factory=dict)
    stem: tuple[Seam, ...] = ()
    tapped: tuple[str, ...] = ()

    @property
    def seams(self) -> tuple[str, ...]:
        """The names of all seams that at least one block has, in the order of `SEAMS`."""
        offered = {seam.name for block in self.blocks for seam in block.seams}
        return tuple(name for name in SEAMS if name in offered)

    def block(self, name: str) -> Block:
        """Returns the block of that name."""
        for block in self.blocks:
            if block.name == name:
                return block
        raise unknown(f"block of family {self.family!r}", name, [block.name for block in self.blocks])

    def rows(self) -> list[tuple[str, ...]]:
        """One row of text per block: the columns of `COLUMNS`."""
        return [_row(block) for block in self.blocks]

    def _repr_html_(self) -> str:
        """The description as a table, for notebooks."""
        h, w = self.input_size
        title = f"{self.family}, {len(self.blocks)} blocks, images {h}×{w}"
        head = "".join(f"<th>{name}</th>" for name in COLUMNS)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows())
        absent = "".join(f"<p>no {escape(seam)}: {escape(reason)}</p>" for seam, reason in self.absent.items())
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div><p><strong>{escape(title)}</strong></p>{table}{absent}</div>"


#: The columns of the description of a model as a table.
COLUMNS = ("block", "stage", "mixer", "grid", "prefix", "width", "seams")


def _row(block: Block) -> tuple[str, ...]:
    place = next(iter(block.seams or block.taps), None)
    layout = place.layout if place else block.mixer.queries
    grid = "x".join(map(str, layout.grid)) if layout else ""
    cells = (block.stage, block.mixer.kind, grid, layout.prefix if layout else "", place.dim if place else "")
    return (block.name, *map(str, cells), " ".join(seam.name for seam in block.seams))
