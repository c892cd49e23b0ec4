import copy

import pytest
import timm
import torch
from timm.layers import Attention
from torch import nn

from vitlab.core.errors import VitlabError
from vitlab.modules.uniform_heads import UniformHead

DIM, HEADS, HEAD = 12, 3, 4


@pytest.fixture
def attention():
    torch.manual_seed(0)
    return Attention(DIM, num_heads=HEADS, qkv_bias=True, qk_norm=True, norm_layer=nn.LayerNorm).double().eval()


@pytest.fixture
def x():
    return torch.randn(2, 5, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def last_head_uniform(attention, x):
    """timm's attention with explicit maps, the last of which is set to 1/N."""
    b, n, _ = x.shape
    q, k, v = attention.qkv(x).reshape(b, n, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
    maps = (attention.q_norm(q) @ attention.k_norm(k).transpose(-2, -1) * HEAD**-0.5).softmax(-1)
    maps = torch.cat((maps[:, :-1], torch.full_like(maps[:, -1:], 1 / n)), dim=1)
    return attention.proj((maps @ v).transpose(1, 2).reshape(b, n, DIM))


@pytest.mark.parametrize(
    ("form", "total"), [("A", 21_459_304), ("B", 22_049_896), ("C", 29_128_552), (None, 22_050_664)]
)
def test_parameters_of_vit_small(form, total):
    with torch.device("meta"):
        model = timm.create_model("vit_small_patch16_224")
    for block in model.blocks if form else ():
        block.attn = UniformHead(block.attn, form=form)
    assert sum(parameter.numel() for parameter in model.parameters()) == total


def test_a_sets_the_last_map_to_uniform(attention, x):
    torch.testing.assert_close(UniformHead(attention, form="A")(x), last_head_uniform(attention, x))


def test_b_adds_more_channels_to_the_uniform_head(attention, x):
    part = UniformHead(attention, form="B")
    torch.testing.assert_close(part(x), last_head_uniform(attention, x))  # the extra projection starts at zero
    nn.init.normal_(part.extra_proj.weight)
    values = part.extra_value(x)
    uniform = torch.full((5, 5), 1 / 5, dtype=torch.float64) @ values
    expected = last_head_uniform(attention, x) + uniform @ part.extra_proj.weight.T
    torch.testing.assert_close(part(x), expected)


def test_c_adds_a_uniform_head_as_wide_as_the_model(attention, x):
    part = UniformHead(attention, form="C")
    torch.testing.assert_close(part(x), attention(x))
    nn.init.normal_(part.extra_proj.weight)
    values = part.extra_qkv(x)[..., 2 * DIM :]
    uniform = torch.full((5, 5), 1 / 5, dtype=torch.float64) @ values
    torch.testing.assert_close(part(x), attention(x) + uniform @ part.extra_proj.weight.T)


def test_queries_and_keys_of_c_have_no_effect(attention, x):
    part = UniformHead(attention, form="C")
    nn.init.normal_(part.extra_proj.weight)
    part(x).square().sum().backward()
    gradient = part.extra_qkv.weight.grad
    assert torch.equal(gradient[: 2 * DIM], torch.zeros_like(gradient[: 2 * DIM]))
    assert gradient[2 * DIM :].abs().min() > 0


@pytest.mark.parametrize("form", ["A", "B", "C"])
def test_shares_modules_and_adds_only_its_own_keys(attention, form):
    part = UniformHead(attention, form=form)
    for name in ("q_norm", "k_norm", "norm", "proj", "attn_drop", "proj_drop"):
        assert getattr(part, name) is getattr(attention, name)
    assert (part.qkv is attention.qkv) == (form == "C")
    ours = {key for key in part.state_dict() if key.startswith("extra_")}
    assert part.state_dict().keys() - ours == attention.state_dict().keys()
    assert attention.qkv.out_features == 3 * DIM, "the original is left as it was"


@pytest.mark.parametrize("form", ["A", "B", "C"])
@pytest.mark.parametrize("bias", [True, False])
def test_loads_a_plain_checkpoint_and_its_own(form, bias):
    """Strictly, nested in a model as it would be; afterwards it does what it would do if built from those weights."""
    torch.manual_seed(0)
    plain, other = (nn.Sequential(nn.Identity(), Attention(DIM, num_heads=HEADS, qkv_bias=bias)) for _ in range(2))
    model, expected = copy.deepcopy(other), copy.deepcopy(plain)
    model[1] = UniformHead(model[1], form=form)
    expected[1] = UniformHead(expected[1], form=form)
    x = torch.randn(2, 4, DIM)
    assert not torch.allclose(model(x), expected(x))
    model.load_state_dict(plain.state_dict())
    torch.testing.assert_close(model(x), expected(x))
    if form != "A":
        nn.init.normal_(model[1].extra_proj.weight)
    own = model.state_dict()
    expected.load_state_dict(own)
    torch.testing.assert_close(expected(x), model(x))


def test_a_checkpoint_with_half_of_the_extra_weights_raises(attention):
    part = UniformHead(attention, form="C")
    state = part.state_dict()
    del state["extra_qkv.weight"]
    with pytest.raises(RuntimeError, match=r"extra_qkv\.weight"):
        part.load_state_dict(state)


def test_refuses_wrong_forms(attention):
    with pytest.raises(VitlabError, match="no form of UniformHead 'D'"):
        UniformHead(attention, form="D")
    with pytest.raises(VitlabError, match="this attention has 1"):
        UniformHead(Attention(4, num_heads=1), form="A")
    with pytest.raises(VitlabError, match="qkv 12 -> 28"):
        UniformHead(UniformHead(attention, form="A"), form="A")
