"""The seams of the blocks that `retrofit(at=, blocks=)` selects."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

from vitlab.core.anatomy import Anatomy, Block, Seam
from vitlab.core.annotations import shown
from vitlab.core.errors import VitlabError, unknown

_RANGE = re.compile(r"^(\d+%?)?:(\d+%?)?$")


def select_seams(anatomy: Anatomy, at: str, blocks: Any) -> list[tuple[Block, Seam]]:
    """The selected blocks and their seams of that name; warns or raises an error for blocks without it."""
    mixing = [block for block in anatomy.blocks if block.mixer.kind != "class attention"]
    if at == "stage.out":
        mixing = [block for block in mixing if block.seam(at)]
    blocks = blocks.tolist() if hasattr(blocks, "tolist") else blocks  # an array
    chosen = _not_tapped(anatomy, mixing) if blocks == "not-tapped" else _select_blocks(mixing, blocks)
    seams = [(block, block.seam(at)) for block in chosen]
    missing = [block.name for block, seam in seams if seam is None]
    if len(missing) == len(seams):
        why = anatomy.absent.get(at)
        raise VitlabError(
            f"no seam {at!r} in {'these blocks of ' if at in anatomy.seams else ''}family {anatomy.family!r}"
            + (f" ({why})" if why else "")
            + f"; it has: {', '.join(anatomy.seams)}"
        )
    if missing and not isinstance(blocks, str):
        raise VitlabError(
            f"no seam {at!r} in {', '.join(missing)} of family {anatomy.family!r}; omit them from blocks="
        )
    if missing:
        warnings.warn(
            f"{len(missing)} of {len(seams)} blocks have no seam {at!r} and are skipped: {', '.join(missing)}",
            stacklevel=3,
        )
    return [(block, seam) for block, seam in seams if seam is not None]


def _not_tapped(anatomy: Anatomy, blocks: list[Block]) -> list[Block]:
    if not anatomy.tapped:
        raise VitlabError(
            "invalid blocks='not-tapped': the model is not an assembly, so that no block feeds a neck; use 'all'"
        )
    chosen = [block for block in blocks if block.name not in anatomy.tapped]
    if not chosen:
        raise VitlabError("invalid blocks='not-tapped': all blocks feed the neck; choose other taps")
    return chosen


def _select_blocks(blocks: list[Block], spec: Any) -> list[Block]:
    """The blocks that a specification selects, in execution order."""
    count, names = len(blocks), [block.name for block in blocks]
    expected = "expected 'all', 'upper', 'lower', a range such as '6:12' or ':30%', or a list of indices or names"
    if isinstance(spec, str):
        if spec in ("all", "upper", "lower"):
            half = count // 2
            return {"all": blocks, "upper": blocks[half:], "lower": blocks[:half]}[spec]
        match = _RANGE.match(spec.replace(" ", ""))
        if match is None:
            raise VitlabError(f"invalid blocks={spec!r}; {expected}")
        start, stop = (_bound(bound, count) for bound in match.groups())
        chosen = blocks[start:stop]
        if not chosen:
            raise VitlabError(f"invalid blocks={spec!r}: the range is empty; the model has {count} token-mixing blocks")
        return chosen
    if not isinstance(spec, Sequence) or not spec:
        raise VitlabError(f"invalid blocks={shown(spec)}; {expected}")
    selected = set()
    for item in spec:
        if isinstance(item, str):
            if item not in names:
                raise unknown("block", item, names)
            selected.add(names.index(item))
        elif isinstance(item, int) and not isinstance(item, bool) and -count <= item < count:
            selected.add(item % count)
        else:
            raise VitlabError(f"no block {item!r}; the model has {count} token-mixing blocks, 0 to {count - 1}")
    return [blocks[i] for i in sorted(selected)]


def _bound(text: str | None, count: int) -> int | None:
    """A bound of a range: a number of blocks, or a share of them, rounded half up."""
    if text is None:
        return None
    return int(int(text[:-1]) * count / 100 + 0.5) if text.endswith("%") else int(text)
