"""Which form of an operator runs: `status` agrees with the operators."""

import torch

import vitlab
from vitlab import kernels
from vitlab.core.anatomy import TokenLayout
from vitlab.kernels import attention_diversity
from vitlab.recording.attention_call import AttentionCall

TINY = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, depth=2, embed_dim=24, num_heads=3)"


def call(keys, channels, bias=None):
    layout = TokenLayout((1, keys))
    q = torch.zeros(1, 1, keys, channels)
    return AttentionCall("a block", layout, layout, q=q, k=q, bias=bias)


def test_without_a_model_all_operators_are_listed():
    paths = kernels.status(device="cpu")
    assert len({path.operator for path in paths}) == len(paths) == 5
    assert {(path.form, path.reason) for path in paths} == {("plain", "cpu has no Triton kernels")}


def test_parts_and_attention_calls_of_a_model():
    model = vitlab.load(f"{TINY} | TokenAwarePooling")
    calls = {
        "small": call(16, 8),
        "many keys": call(300, 8),
        "learned bias": call(16, 8, torch.zeros(1, requires_grad=True)),
    }
    paths = kernels.status(model, calls, "cpu")
    pooling = [path for path in paths if path.operator == "token_pooling"]
    assert [path.place for path in pooling] == [part.path for part in vitlab.parts(model)]
    reasons = {path.place: path.reason for path in paths if path.operator == "attention_diversity"}
    assert reasons["small"] == "cpu has no Triton kernels"
    assert "300 keys" in reasons["many keys"] and "bias" in reasons["learned bias"]
    assert {path.place for path in paths if path.operator == "twin_products"} == set(calls)
    for name, each in calls.items():
        assert attention_diversity.missing(each.q, each.k, each.bias) == reasons[name]
