import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.modules.context_broadcast import (
    ContextBroadcast,
    GatedContextBroadcast,
    HybridContextBroadcast,
    ScaledContextBroadcast,
)

LAYOUT = TokenLayout((2, 2), prefix=1)


def tokens(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def loop_mean(x, start, stop):
    """The mean over tokens [start, stop), token by token."""
    total = torch.zeros_like(x[:, 0])
    for j in range(start, stop):
        total = total + x[:, j]
    return total / (stop - start)


def test_is_half_itself_and_half_the_mean():
    x = tokens(2, 5, 3)
    expected = torch.stack([(x[:, i] + loop_mean(x, 0, 5)) / 2 for i in range(5)], dim=1)
    torch.testing.assert_close(ContextBroadcast()(x), expected)


def test_halves_the_variance_across_tokens_and_keeps_the_mean():
    x = tokens(2, 5, 3)
    y = ContextBroadcast()(x)
    torch.testing.assert_close(y.mean(1), x.mean(1))
    torch.testing.assert_close(y.std(1), x.std(1) / 2)


def test_mid_equals_end_of_an_mlp_but_front_does_not():
    """Averaging commutes with an affine layer, and not with GELU (FACTS §1: Mid == End)."""
    torch.manual_seed(0)
    fc1, fc2, cb = nn.Linear(6, 24).double(), nn.Linear(24, 6).double(), ContextBroadcast()
    x = tokens(2, 7, 6)
    hidden = nn.functional.gelu(fc1(x))
    end = cb(fc2(hidden))
    assert (fc2(cb(hidden)) - end).abs().max() <= 1e-12
    assert (fc2(nn.functional.gelu(fc1(cb(x)))) - end).abs().max() > 1e-3


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_range_confines_mean_and_broadcast(data):
    count = data.draw(st.integers(1, 8))
    start = data.draw(st.integers(0, count - 1))
    stop = data.draw(st.integers(start + 1, count))
    scale = data.draw(st.floats(-2, 2))
    x = tokens(2, count, 3)
    mean = loop_mean(x, start, stop)
    plain, scaled = x.clone(), x.clone()
    for i in range(start, stop):
        plain[:, i] = 0.5 * x[:, i] + 0.5 * mean
        scaled[:, i] = x[:, i] + scale * mean
    torch.testing.assert_close(ContextBroadcast(tokens=(start, stop))(x), plain)
    part = ScaledContextBroadcast(3, init=scale, tokens=(start, stop)).double()
    nn.init.constant_(part.scale, scale)
    torch.testing.assert_close(part(x), scaled)


def test_scaled_has_no_half_and_one_weight_per_channel():
    x = tokens(1, 4, 2)
    part = ScaledContextBroadcast(2).double()
    assert [(name, tuple(weight.shape)) for name, weight in part.named_parameters()] == [("scale", (2,))]
    assert torch.equal(part(x), x), "the model starts as it was"
    with torch.no_grad():
        part.scale.copy_(torch.tensor([1.0, -2.0]))
    expected = x + torch.stack((x[:, :, 0].mean(1), -2 * x[:, :, 1].mean(1)), dim=-1)[:, None]
    torch.testing.assert_close(part(x), expected)


def test_gate_and_hybrid_follow_their_equations():
    x = tokens(2, 5, 3)
    gated, hybrid = GatedContextBroadcast(LAYOUT)(x), HybridContextBroadcast(LAYOUT)(x)
    for i in range(5):
        torch.testing.assert_close(gated[:, i], x[:, i] * (x[:, 0] + 1))
        torch.testing.assert_close(hybrid[:, i], x[:, i] * x[:, 0] + 0.5 * x[:, i] + 0.5 * loop_mean(x, 0, 5))


@pytest.mark.parametrize("part", [GatedContextBroadcast, HybridContextBroadcast])
def test_gates_need_a_class_token(part):
    with pytest.raises(VitlabError, match=f"{part.__name__}.*no prefix token"):
        part(TokenLayout((2, 2)))


@pytest.mark.parametrize("wrong", [(2, 2), (3, 1), (-1, 2), (1, 2, 3)])
def test_refuses_an_empty_range(wrong):
    with pytest.raises(VitlabError, match="start < stop"):
        ContextBroadcast(tokens=wrong)


def test_refuses_a_range_past_the_end():
    with pytest.raises(VitlabError, match="past the end of a sequence of 3 tokens"):
        ContextBroadcast(tokens=(1, 4))(tokens(1, 3, 2))
