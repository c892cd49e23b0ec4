import pytest
import timm
import torch
from timm.layers import Attention
from torch import nn

from vitlab.core.errors import VitlabError
from vitlab.modules.qkv import PackedAttention


class Plain(PackedAttention):
    """The attention itself, rebuilt from the view."""

    def mix(self, x):
        return self.project(self.merge(self.attend(*self.queries_keys_values(x))))


@pytest.mark.parametrize(
    "settings",
    [{}, {"qkv_bias": True}, {"qk_norm": True, "scale_norm": True, "norm_layer": nn.LayerNorm}, {"attn_head_dim": 3}],
)
@pytest.mark.parametrize("fused", [True, False])
def test_reads_attention_of_timm(settings, fused):
    torch.manual_seed(0)
    attention = Attention(8, num_heads=2, **settings).eval()
    attention.fused_attn = fused
    part = Plain(attention).eval()
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(part(x, attn_mask=None, is_causal=False), attention(x))
    assert part.state_dict().keys() == attention.state_dict().keys()
    assert part.proj is attention.proj


def test_applies_the_dropouts_in_training_only():
    attention = Attention(8, num_heads=2, attn_drop=0.5, proj_drop=0.0)
    part = Plain(attention)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(part(x), part(x))
    part.eval()
    assert torch.equal(part(x), part(x))


def test_views_heads():
    attention = Attention(6, num_heads=3)
    q, k, v = Plain(attention).queries_keys_values(x := torch.randn(2, 4, 6))
    packed = attention.qkv(x)
    for head in range(3):
        for third, part in enumerate((q, k, v)):
            start = 6 * third + 2 * head
            assert torch.equal(part[:, head], packed[:, :, start : start + 2])


def test_refuses_masks():
    part = Plain(Attention(8, num_heads=2))
    with pytest.raises(VitlabError, match="no attention mask"):
        part(torch.randn(1, 3, 8), attn_mask=torch.zeros(3, 3))
    with pytest.raises(VitlabError, match="no attention mask"):
        part(torch.randn(1, 3, 8), is_causal=True)


@pytest.mark.parametrize(
    ("attention", "why"),
    [
        (nn.MultiheadAttention(8, 2), "MultiheadAttention differs"),
        (nn.Identity(), "Identity differs"),
        (Attention(8, num_heads=2, gated=True), "does not support gate of Attention"),
        (timm.layers.Mlp(8), "Mlp differs"),
    ],
)
def test_refuses_other_forms(attention, why):
    with pytest.raises(VitlabError, match=f"Plain .*{why}"):
        Plain(attention)


def test_refuses_a_position_bias():
    """Swin's attention has the same layers and a bias table: dropping the table would silently change the model."""
    swin = timm.models.swin_transformer.WindowAttention(8, num_heads=2, window_size=2)
    with pytest.raises(VitlabError, match="relative_position_bias_table"):
        Plain(swin)


def test_refuses_unequal_packing():
    attention = Attention(8, num_heads=2)
    attention.qkv = nn.Linear(8, 20)
    with pytest.raises(VitlabError, match="qkv 8 -> 20"):
        Plain(attention)
