"""Layouts and windows, against torch's roll and reshape."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.core.anatomy import SEAMS, Anatomy, Block, Mixer, Seam, TokenLayout, window_permutation
from vitlab.core.errors import VitlabError

sizes = st.integers(1, 4)


@settings(deadline=None, max_examples=60)
@given(sizes, sizes, sizes, sizes, st.integers(-3, 9), st.integers(-3, 9), st.booleans())
def test_windows_are_torch_roll_and_reshape(
    rows: int, columns: int, p: int, q: int, down: int, right: int, dilated: bool
) -> None:
    grid = torch.arange(rows * p * columns * q).reshape(rows * p, columns * q)
    rolled = grid.roll((-down, -right), (0, 1))
    if dilated:  # MaxViT's grid partition: (p, rows, q, columns)
        cut = rolled.reshape(p, rows, q, columns).permute(1, 3, 0, 2)
    else:  # Swin's window partition: (rows, p, columns, q)
        cut = rolled.reshape(rows, p, columns, q).permute(0, 2, 1, 3)
    ours = window_permutation((rows * p, columns * q), (p, q), (down, right), dilated)
    assert ours == tuple(cut.flatten().tolist())


@pytest.mark.parametrize(("grid", "window"), [((7, 8), (2, 2)), ((8, 7), (2, 2)), ((2, 2), (4, 4))])
def test_windows_that_do_not_divide_the_grid_have_no_order(grid: tuple[int, int], window: tuple[int, int]) -> None:
    assert window_permutation(grid, window) == ()


def test_a_sequence_of_another_length_raises() -> None:
    layout = TokenLayout((3, 5), prefix=2)
    layout.check(17, "TAP")
    with pytest.raises(
        VitlabError, match=r"TAP was fitted for a 3x5 grid and 2 prefix.*17 tokens.*got 16.*input_size="
    ):
        layout.check(16, "TAP")


def anatomy() -> Anatomy:
    layout = TokenLayout((2, 2))
    mixer = Mixer("attention", "attn", layout, layout)
    end, start = Seam("mlp.out", "a.mlp", "out", layout, 8), Seam("attn.in", "b.attn", "in", layout, 8)
    tap = Seam("mlp.out", "elsewhere", "out", layout, 8)
    first = Block("a", 0, 0, mixer, seams=(end,), taps=(tap,))
    return Anatomy("vit", (first, Block("b", 1, 0, mixer, seams=(start, end))), (32, 32))


def test_the_seams_of_a_model_are_those_of_all_its_blocks_in_the_vocabularys_order() -> None:
    assert anatomy().seams == ("attn.in", "mlp.out")
    assert set(anatomy().seams) <= set(SEAMS)


def test_blocks_and_seams_are_found_by_name() -> None:
    model = anatomy()
    assert model.block("b").index == 1
    assert model.block("a").seam("attn.in") is None
    assert model.block("a").seam("mlp.out").path == "a.mlp"
    assert model.block("a").tap("mlp.out").path == "elsewhere"  # a tap goes before a seam of its name
    assert model.block("b").tap("mlp.out").path == "a.mlp"
    with pytest.raises(VitlabError, match="no block of family 'vit' 'c'; there are: a, b"):
        model.block("c")


def test_a_description_is_an_html_table_with_a_row_per_block() -> None:
    seam = Seam("attn.in", "blocks.0", "in", TokenLayout((3, 5), prefix=2), 24)
    blocks = (Block("<b>0</b>", 0, 1, Mixer("attention", "blocks.0.attn"), (seam,)),)
    shown = Anatomy("a & b", blocks, (30, 50), {"mlp.mid": "no <hidden> layer"})._repr_html_()
    cells = re.findall(r"<td>(.*?)</td>", shown)
    assert cells == ["&lt;b&gt;0&lt;/b&gt;", "1", "attention", "3x5", "2", "24", "attn.in"]
    assert "a &amp; b, 1 blocks, images 30×50" in shown and "no &lt;hidden&gt; layer" in shown
