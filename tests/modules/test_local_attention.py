import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.layers import Attention
from torch import nn

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.modules.local_attention import LocalAttention

DIM, HEADS = 8, 2


def attention(**settings):
    torch.manual_seed(0)
    return Attention(DIM, num_heads=HEADS, qkv_bias=True, **settings).double().eval()


def neighbours(layout, kernel):
    """Who may attend to whom, pair by pair: (N, N)."""
    (h, w), prefix = layout.grid, layout.prefix
    places = [None] * prefix + [(i, j) for i in range(h) for j in range(w)]
    return torch.tensor(
        [
            [p is None or q is None or max(abs(p[0] - q[0]), abs(p[1] - q[1])) <= kernel // 2 for q in places]
            for p in places
        ]
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2), st.sampled_from([1, 3, 5]))
def test_is_dense_attention_with_a_mask(h, w, prefix, kernel):
    layout = TokenLayout((h, w), prefix=prefix)
    dense = attention(qk_norm=True, norm_layer=nn.LayerNorm)
    x = torch.randn(2, layout.tokens, DIM, dtype=torch.float64)
    expected = dense(x, attn_mask=neighbours(layout, kernel))
    torch.testing.assert_close(LocalAttention(dense, layout, kernel=kernel)(x), expected)


@pytest.mark.parametrize(("grid", "kernel"), [((3, 4), 7), ((3, 4), 9), ((8, 8), 8), ((8, 8), 15), ((3, 4), 4)])
@pytest.mark.parametrize("prefix", [0, 1])
def test_is_global_where_the_kernel_covers_the_map(grid, kernel, prefix):
    layout, dense = TokenLayout(grid, prefix=prefix), attention()
    x = torch.randn(1, layout.tokens, DIM, dtype=torch.float64)
    torch.testing.assert_close(LocalAttention(dense, layout, kernel=kernel)(x), dense(x))


def test_a_kernel_just_short_of_the_map_is_not_global():
    layout, dense = TokenLayout((3, 4)), attention()
    x = torch.randn(1, 12, DIM, dtype=torch.float64)
    assert (LocalAttention(dense, layout, kernel=5)(x) - dense(x)).abs().max() > 1e-4


def test_makes_no_square_map_and_softmaxes_over_the_keys(monkeypatch):
    shapes = []
    plain = torch.Tensor.softmax

    def spy(self, *arguments, **keywords):
        shapes.append((tuple(self.shape), keywords))
        return plain(self, *arguments, **keywords)

    monkeypatch.setattr(torch.Tensor, "softmax", spy)
    layout = TokenLayout((6, 6), prefix=1)
    LocalAttention(attention(), layout, kernel=3)(torch.randn(2, 37, DIM, dtype=torch.float64))
    assert shapes == [((2, HEADS, 36, 1 + 9), {"dim": -1})]


def test_has_the_weights_of_the_original():
    dense = attention()
    part = LocalAttention(dense, TokenLayout((4, 4)))
    assert part.state_dict().keys() == dense.state_dict().keys()
    assert all(ours is theirs for ours, theirs in zip(part.parameters(), dense.parameters(), strict=True))


def test_gradients():
    part = LocalAttention(attention(), TokenLayout((2, 3), prefix=1), kernel=3)
    x = torch.randn(1, 7, DIM, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(part, (x,))


@pytest.mark.parametrize("kernel", [0, 2, 6])
def test_refuses_kernels_without_a_centre(kernel):
    with pytest.raises(VitlabError, match=f"kernel={kernel}"):
        LocalAttention(attention(), TokenLayout((8, 8)), kernel=kernel)


def test_refuses_windows_and_another_grid():
    with pytest.raises(VitlabError, match="windows=4"):
        LocalAttention(attention(), TokenLayout((4, 4), windows=4))
    with pytest.raises(VitlabError, match="LocalAttention was fitted for a 4x4 grid"):
        LocalAttention(attention(), TokenLayout((4, 4)))(torch.zeros(1, 15, DIM, dtype=torch.float64))
