import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.modules.token_aware_pooling import MultiKernelPooling, TokenAwarePooling, _convolve, _convolve_few


def dilated(x, branch):
    """3×3 neighbours at a dilation, unfolded and averaged: (B, C, h, w) -> (B, C, h, w)."""
    if branch == 0:
        return x
    b, c, h, w = x.shape
    return F.unfold(x, 3, dilation=branch, padding=branch).reshape(b, c, 9, h, w).mean(2)


def boxed(x, branch):
    return F.avg_pool2d(x, 2 * branch + 1, stride=1, padding=branch, count_include_pad=True)


def by_hand(part, x, pool):
    """The equation, written for maps (B, C, h, w)."""
    first, norm, second = part.predictor
    hidden = F.batch_norm(
        F.conv2d(x, first.weight, padding=1), norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
    )
    weights = (F.conv2d(hidden, second.weight, padding=1) / part.temperature).softmax(1)
    return sum(weights[:, [k]] * pool(x, k) for k in range(part.branches))


@pytest.mark.parametrize(("kind", "pool"), [(TokenAwarePooling, dilated), (MultiKernelPooling, boxed)])
@settings(max_examples=12, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2), st.integers(2, 5), st.sampled_from([0.5, 1.0, 3.0]))
def test_follows_the_equation_on_any_grid(kind, pool, h, w, prefix, branches, temperature):
    torch.manual_seed(h * 10 + w)
    part = kind(3, TokenLayout((h, w), prefix=prefix), branches=branches, temperature=temperature).double().eval()
    for tensor in (part.predictor[1].running_mean, part.predictor[1].weight, part.predictor[1].bias):
        nn.init.normal_(tensor)
    x = torch.randn(2, prefix + h * w, 3, dtype=torch.float64)
    y = part(x)
    maps = x[:, prefix:].transpose(1, 2).reshape(2, 3, h, w)
    assert torch.equal(y[:, :prefix], x[:, :prefix])
    torch.testing.assert_close(y[:, prefix:], by_hand(part, maps, pool).flatten(2).transpose(1, 2))


@pytest.mark.parametrize(("dim", "branches", "expected"), [(448, 4, 16_280), (768, 4, 27_800)])
def test_parameter_count(dim, branches, expected):
    part = TokenAwarePooling(dim, TokenLayout((14, 14)), branches=branches)
    assert sum(weight.numel() for weight in part.parameters()) == expected
    assert expected == 9 * dim * branches + 2 * branches + 9 * branches**2


@pytest.mark.parametrize(("branches", "total"), [(4, 50_735_528), (5, 50_801_368)])
def test_parameters_of_fan_base(branches, total):
    part = TokenAwarePooling(448, TokenLayout((14, 14)), branches=branches)
    assert 50_475_048 + 16 * sum(weight.numel() for weight in part.parameters()) == total


def test_one_branch_is_exactly_the_identity():
    part = TokenAwarePooling(3, TokenLayout((2, 3), prefix=1), branches=1)
    x = torch.randn(2, 7, 3)
    assert torch.equal(part(x), x)
    assert part.state_dict() == {}


@pytest.mark.parametrize("kind", [TokenAwarePooling, MultiKernelPooling])
def test_gradients(kind):
    torch.manual_seed(0)
    part = kind(2, TokenLayout((2, 3), prefix=1), branches=3).double()
    x = torch.randn(2, 7, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(part, (x,))


def test_refuses_wrong_settings_and_another_grid():
    with pytest.raises(VitlabError, match="branches=0"):
        TokenAwarePooling(2, TokenLayout((2, 2)), branches=0)
    with pytest.raises(VitlabError, match="temperature=0"):
        MultiKernelPooling(2, TokenLayout((2, 2)), temperature=0)
    with pytest.raises(VitlabError, match="TokenAwarePooling was fitted for a 2x2 grid"):
        TokenAwarePooling(2, TokenLayout((2, 2)))(torch.zeros(1, 5, 2))


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.integers(1, 5))
def test_both_products_are_the_convolution(h, w, channels, branches):
    """The forms on a GPU, with their gradients, against torch's convolution."""
    torch.manual_seed(h * 10 + w)
    x = torch.randn(2, channels, h, w, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(branches, channels, 3, 3, dtype=torch.float64, requires_grad=True)
    expected = F.conv2d(x, weight, padding=1)
    gradient = torch.randn_like(expected)
    shifts = _convolve(F.pad(x.flatten(2).mT, (0, 0, 2, 0)), weight, (h, w), 2).permute(0, 3, 1, 2)
    for found in (_convolve_few(x, weight), shifts):
        torch.testing.assert_close(found, expected)
        truths = torch.autograd.grad(expected, (x, weight), gradient, retain_graph=True)
        torch.testing.assert_close(torch.autograd.grad(found, (x, weight), gradient), truths)
