from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitlab
from cases.attention import FAMILY
from vitlab.core.anatomy import TokenLayout, window_permutation
from vitlab.instruments.shared.token_positions import cells_apart, distances, positions


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2))
def test_pairs_of_a_plain_grid(h, w, prefix):
    layout = TokenLayout((h, w), prefix=prefix)
    far, apart = distances(layout, layout), cells_apart(layout, layout)
    assert far.shape == apart.shape == (1, layout.tokens, layout.tokens)
    for i in range(h * w):
        for j in range(h * w):
            rows, columns = abs(i // w - j // w), abs(i % w - j % w)
            assert abs(far[0, prefix + i, prefix + j] - (rows / h + columns / w)) < 1e-6
            assert apart[0, prefix + i, prefix + j] == max(rows, columns)
    assert not far[:, :prefix].any() and not far[:, :, :prefix].any()
    assert apart[:, :prefix].isinf().all() and apart[:, :, :prefix].isinf().all()


def test_swin_windows_that_wrap_around_keep_their_true_positions():
    """The oracle rolls an index map and splits it into windows as Swin does."""
    model = FAMILY["swin"].model()
    anatomy = vitlab.describe(model, FAMILY["swin"].size)
    shifts = []
    for block in anatomy.blocks:
        module = model.get_submodule(block.name)
        (h, w), (p, q), shift = block.mixer.queries.grid, module.window_size, module.shift_size
        shifts.append(shift)
        index = torch.arange(h * w).reshape(h, w).roll((-shift[0], -shift[1]), (0, 1))
        windows = index.reshape(h // p, p, w // q, q).transpose(1, 2).reshape(-1, p * q)
        expected = torch.stack(((windows // w + 0.5) / h, (windows % w + 0.5) / w), -1)
        assert torch.allclose(positions(block.mixer.queries), expected)
    assert any(any(shift) for shift in shifts)


def test_a_reduced_key_is_at_the_centre_of_its_cells():
    fine, coarse = positions(TokenLayout((8, 16)))[0], positions(TokenLayout((2, 4)))[0]
    cells = fine.reshape(2, 4, 4, 4, 2).transpose(1, 2).reshape(8, 16, 2)
    assert torch.allclose(cells.mean(1), coarse)


def test_padded_windows_have_no_known_positions():
    padded = TokenLayout((3, 3), windows=4, permutation=window_permutation((3, 3), (2, 2)))
    assert positions(padded) is None and distances(padded, padded) is None and cells_apart(padded, padded) is None
