"""Contract of every part: shape, precision, unchanged input, one compiled graph."""

import copy

import pytest
import torch
from timm.layers import Attention
from torch import nn

from vitlab.core import plugins
from vitlab.core.anatomy import SEAMS, TokenLayout

LAYOUT = TokenLayout((3, 4), prefix=1)
DIM = 8


def attention():
    torch.manual_seed(0)
    return Attention(DIM, num_heads=2, qkv_bias=True)


PARTS = {
    "ContextBroadcast": lambda part: part(),
    "ContextBroadcast(tokens)": lambda part: part(tokens=(1, 5)),
    "ContextBroadcast(identity_init)": lambda part: part(tokens=(1, 5), identity_init=True),
    "ScaledContextBroadcast": lambda part: part(DIM, init=0.5),
    "GatedContextBroadcast": lambda part: part(LAYOUT),
    "GatedContextBroadcast(identity_init)": lambda part: part(LAYOUT, identity_init=True),
    "HybridContextBroadcast": lambda part: part(LAYOUT),
    "TokenAwarePooling": lambda part: part(DIM, LAYOUT),
    "TokenAwarePooling(branches=1)": lambda part: part(DIM, LAYOUT, branches=1),
    "TokenAwarePooling(identity_init)": lambda part: part(DIM, LAYOUT, identity_init=True),
    "MultiKernelPooling": lambda part: part(DIM, LAYOUT),
    "AveragePooling": lambda part: part(LAYOUT),
    "AveragePooling(identity_init)": lambda part: part(LAYOUT, identity_init=True),
    "ConvolutionPooling": lambda part: part(DIM, LAYOUT),
    "SqueezeExcite": lambda part: part(DIM),
    "SqueezeExcite(identity_init)": lambda part: part(DIM, identity_init=True),
    "SpatialSmoothing": lambda part: part(LAYOUT),
    "UniformHead(A)": lambda part: part(attention(), form="A"),
    "UniformHead(B)": lambda part: part(attention(), form="B"),
    "UniformHead(C)": lambda part: part(attention(), form="C"),
    "LocalAttention": lambda part: part(attention(), LAYOUT),
    "LocalAttention(global)": lambda part: part(attention(), LAYOUT, kernel=7),
}


@pytest.fixture(params=PARTS)
def part(request):
    torch.manual_seed(0)
    return PARTS[request.param](plugins.part(request.param.partition("(")[0]))


@pytest.fixture
def x():
    return torch.randn(2, LAYOUT.tokens, DIM, generator=torch.Generator().manual_seed(1))


def test_every_part_is_tested():
    ours = {name for name, module in plugins.parts().items() if module.startswith("vitlab.modules.")}
    assert ours == {name.partition("(")[0] for name in PARTS}


def test_default_seam_exists(part):
    assert part.default_seam in SEAMS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_keeps_shape_and_precision(part, x, dtype):
    x = x.to(dtype)
    y = part.to(dtype)(x)
    assert y.shape == x.shape
    assert y.dtype == dtype


def test_keeps_precision_under_autocast(part, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert part(x.bfloat16()).dtype == torch.bfloat16


def test_does_not_change_its_input(part, x):
    before = x.clone()
    part(x)
    assert torch.equal(x, before)


def test_carries_gradient_to_every_token(part, x):
    x.requires_grad_()
    part(x).square().sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad.abs().sum(dim=(0, 2)) > 0).all()


def test_gives_every_parameter_a_gradient(part, x):
    """Zeros are fine; None would stop distributed training."""
    part(x.requires_grad_()).square().sum().backward()
    assert [name for name, parameter in part.named_parameters() if parameter.grad is None] == []


def test_compiles_into_one_graph(part, x):
    compiled = torch.compile(part, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), part(x))


def test_exports(part, x):
    exported = torch.export.export(part.eval(), (x,)).module()
    torch.testing.assert_close(exported(x), part(x))


def test_state_dict_round_trip(part, x):
    other = copy.deepcopy(part)
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    other.load_state_dict(part.state_dict())
    torch.testing.assert_close(other.eval()(x), part.eval()(x), rtol=0, atol=0)
