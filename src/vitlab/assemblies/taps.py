"""Read maps (B, C, h, w) of a backbone during its forward, by hooks at chosen places of its description.

The hook is a method of a submodule of the assembly. Copies, pickled models and wrappers of the assembly therefore have
hooks of their own. Autograd, `torch.compile`, DDP and gradient checkpointing see ordinary tensors.

Shape legend: B batch, N tokens, D channels, h w grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block, Seam
from vitlab.core.errors import VitlabError
from vitlab.recording.attention_capture import in_backward
from vitlab.recording.tokens import first_of, orders, to_tokens

LEVELS = 4


class Tap(nn.Module):
    """Keeps the output of one module of the backbone until it is read as a map.

    Args:
        place: the place; its side is `out`.
        size: (h, w) of the images that the place was described for.
    """

    inverse: Tensor | None

    def __init__(self, place: Seam, size: tuple[int, int]) -> None:
        super().__init__()
        self.place = place
        self.size = size
        self.value: Tensor | None = None
        permuted = place.layout.permutation is not None
        self.register_buffer("inverse", orders(place.layout)[1] if permuted else None, persistent=False)

    def keep(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        """The forward hook."""
        if not in_backward():  # gradient checkpointing runs the forward again
            self.value = first_of(output)

    def read(self, images: Tensor) -> Tensor:
        """Returns the map (B, D, h, w) of the last forward, and drops the reference to it."""
        value, layout = self.value, self.place.layout
        if value is None:
            raise VitlabError(f"{self.place.path} did not run in this forward; choose other taps")
        self.value = None
        if layout.order == "BCHW":
            return value
        if layout.order == "BHWD":
            return value.permute(0, 3, 1, 2)
        tokens = to_tokens(value, layout, self.inverse)[:, layout.prefix :]
        rows, columns = layout.grid
        if tuple(images.shape[-2:]) != self.size:  # a backbone for images of any size
            rows, columns = (
                round(side * count / described)
                for side, count, described in zip(images.shape[-2:], layout.grid, self.size, strict=True)
            )
        grid: Tensor = tokens.transpose(1, 2).unflatten(2, (rows, columns))
        return grid


def tapped_places(anatomy: Anatomy, chosen: Sequence[int] | None = None) -> list[Seam]:
    """The four places that a neck reads, from fine to coarse.

    By default: of a plain model with a convolutional stem (FAN-Hybrid) the two stages of the stem, the last block, and
    the last block after class attention; of a hierarchical model the last block of each of the last four stages, those
    of a convolutional stem (TinyViT) included; of a plain model of depth 12 the blocks 3, 5, 7 and 11, as XCiT and BEiT
    do, and proportional ones for another depth. A model with fewer stages gives its last map several times.

    Args:
        anatomy: of the backbone.
        chosen: indices of four blocks, instead of the default.
    """
    mixing = [block for block in anatomy.blocks if block.mixer.kind != "class attention" and _has_map(block)]
    if not mixing:
        raise VitlabError(f"no block of family {anatomy.family!r} has an output map; use another backbone")
    last = next(block for block in reversed(anatomy.blocks) if _has_map(block))
    if chosen is not None:
        return [_output(block) for block in _by_index(anatomy, chosen)]
    plain = len({_output(block).layout.grid for block in mixing}) == 1
    if plain and not anatomy.stem:
        positions = [max(round(len(mixing) * part / 12) - 1, 0) for part in (4, 6, 8)]
        return [*(_output(mixing[position]) for position in positions), _output(last)]
    if plain:
        ends = [*anatomy.stem[:2], _output(mixing[-1]), _output(last)]
    else:
        ends = [*anatomy.stem, *{block.stage: _output(block) for block in mixing}.values()][-LEVELS:]
    return [*ends, *[ends[-1]] * (LEVELS - len(ends))]


def _has_map(block: Block) -> bool:
    place = block.tap("block.out")
    return place is not None and place.side == "out" and min(place.layout.grid) > 0 and not place.layout.shuffled


def _output(block: Block) -> Seam:
    place = block.tap("block.out")
    assert place is not None
    return place


def _by_index(anatomy: Anatomy, chosen: Sequence[int]) -> list[Block]:
    count = len(anatomy.blocks)
    valid = len(chosen) == LEVELS and all(isinstance(index, int) and -count <= index < count for index in chosen)
    if not valid or not all(_has_map(anatomy.blocks[index]) for index in chosen):
        raise VitlabError(
            f"invalid taps={tuple(chosen)!r}; expected the indices of {LEVELS} blocks with an output map, "
            f"0 to {count - 1}"
        )
    return [anatomy.blocks[index] for index in chosen]
