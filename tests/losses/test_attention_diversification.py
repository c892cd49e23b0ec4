import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.core.errors import VitlabError
from vitlab.losses.attention_diversification import attention_diversification


def random_maps(*shapes, sharpness=3.0, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [(sharpness * torch.randn(*shape, dtype=dtype, generator=generator)).softmax(-1) for shape in shapes]


def cosine(a, b):
    norms = [max(math.sqrt(sum(value * value for value in vector)), 1e-8) for vector in (a, b)]
    return sum(x * y for x, y in zip(a, b, strict=True)) / (norms[0] * norms[1])


def one_map(rows, tau, form):
    """One head-averaged map as lists, by the equations."""
    keys = len(rows[0])
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    if form == "paper":
        rows = [[value if value >= tau / keys else 0.0 for value in row] for row in rows]
        mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    else:
        rows = [[value if value > tau / keys else 0.0 for value in row] for row in rows]
        mean = [value if value > tau / keys else 0.0 for value in mean]
    return sum(cosine(mean, row) for row in rows) / len(rows)


def by_hand(maps, tau, form, heads):
    layers = []
    for attention in maps:
        singles = attention.mean(1) if heads == "mean" else attention.flatten(0, 1)
        layers.append(sum(one_map(single.tolist(), tau, form) for single in singles) / len(singles))
    return sum(layers) / (len(layers) + (0 if form == "paper" else 1e-6))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 6),
    st.sampled_from([0.0, 1.0, 2.0, 3.5]),
    st.sampled_from(["paper", "released"]),
    st.sampled_from(["mean", "each"]),
)
def test_follows_the_equations(batch, count, queries, keys, tau, form, heads):
    maps = random_maps((batch, count, queries, keys), (batch, count, keys, keys))
    found = attention_diversification(maps, tau=tau, form=form, heads=heads)
    assert float(found) == pytest.approx(by_hand(maps, tau, form, heads), abs=1e-12)


def test_forms_differ_where_the_code_differs_from_the_paper():
    """Rows point at different keys: no column average reaches 2/M, so the released average is cut to nothing."""
    disjoint = [torch.eye(4)[None, None]]
    assert float(attention_diversification(disjoint, form="paper")) == pytest.approx(1 / 2)
    assert float(attention_diversification(disjoint, form="released")) == 0


def test_the_threshold_itself_passes_in_the_paper_only():
    even = [torch.tensor([[0.5, 0.5, 0.0, 0.0]]).expand(4, 4)[None, None]]
    assert float(attention_diversification(even, form="paper")) == pytest.approx(1)
    assert float(attention_diversification(even, form="released")) == 0


@pytest.mark.parametrize("form", ["paper", "released"])
def test_uniform_maps_give_zero_and_a_zero_gradient(form):
    uniform = torch.full((1, 2, 5, 5), 0.2, requires_grad=True)
    loss = attention_diversification([uniform], form=form)
    loss.backward()
    assert float(loss.detach()) == 0
    assert torch.equal(uniform.grad, torch.zeros_like(uniform))


@pytest.mark.parametrize("form", ["paper", "released"])
def test_rows_in_which_nothing_passes_leave_gradients_finite(form):
    rows = torch.full((1, 1, 3, 6), 1 / 6)
    rows[0, 0, 0] = torch.tensor([0.9, 0.1, 0, 0, 0, 0])
    rows[0, 0, 1] = torch.tensor([0.8, 0.0, 0.2, 0, 0, 0])
    rows.requires_grad_()
    loss = attention_diversification([rows], form=form)
    loss.backward()
    assert 0 < float(loss.detach()) <= 2 / 3 + 1e-6
    assert rows.grad.isfinite().all()
    assert rows.grad.abs().max() < 10


@pytest.mark.parametrize("form", ["paper", "released"])
@pytest.mark.parametrize("heads", ["mean", "each"])
def test_gradients_flow_through_both_operands(form, heads):
    logits = 2 * torch.randn(2, 2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits.requires_grad_()

    def loss(logits):
        return attention_diversification([logits.softmax(-1)], tau=1.0, form=form, heads=heads)

    assert float(loss(logits).detach()) > 0
    assert torch.autograd.gradcheck(loss, (logits,), eps=1e-7)


def test_descending_makes_rows_differ():
    logits = torch.randn(1, 1, 6, 6, generator=torch.Generator().manual_seed(0)) + torch.tensor([1.5, 0, 0, 0, 0, 0])
    logits.requires_grad_()
    start = attention_diversification([logits.softmax(-1)])
    for _ in range(50):
        loss = attention_diversification([logits.softmax(-1)])
        (gradient,) = torch.autograd.grad(loss, logits)
        logits = (logits - 5 * gradient).detach().requires_grad_()
    assert float(loss.detach()) < float(start.detach()) - 0.05


def test_autocast_changes_nothing():
    maps = random_maps((2, 3, 8, 8), dtype=torch.float32)
    plain = attention_diversification(maps)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = attention_diversification(maps)
    assert under.dtype == torch.float32
    assert torch.equal(under, plain)


def test_half_precision_maps_are_read_in_float32():
    (attention,) = random_maps((1, 2, 8, 8), dtype=torch.bfloat16)
    found = attention_diversification([attention])
    assert found.dtype == torch.float32
    assert torch.equal(found, attention_diversification([attention.float()]))


def test_compiles_into_one_graph():
    maps = random_maps((2, 3, 4, 4), (2, 3, 4, 4))
    compiled = torch.compile(attention_diversification, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(maps), attention_diversification(maps))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"form": "official"}, "no form"),
        ({"heads": "all"}, "no heads"),
        ({"tau": -1.0}, "tau=-1.0"),
        ({"maps": []}, "no maps"),
        ({"maps": [torch.ones(2, 3, 3)]}, r"\(2, 3, 3\)"),
    ],
)
def test_mistakes_raise(wrong, why):
    with pytest.raises(VitlabError, match=why):
        attention_diversification(**{"maps": random_maps((1, 1, 2, 2)), **wrong})
