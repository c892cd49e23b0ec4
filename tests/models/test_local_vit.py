"""LocalViT: counts, its feed-forward network against a loop over positions, and the bypass of the class token."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import Tensor, nn

from cases import redraw
from cases.model_promises import compiles_and_exports, images, multiply_accumulates, parameters, round_trips, trains
from vitlab.models.local_vit import PAPER, LocalityFeedForward, LocalVisionTransformer

TINY = {"img_size": 32, "patch_size": 8, "embed_dim": 12, "depth": 2, "num_heads": 2, "num_classes": 7}


def tiny(seed: int = 0, **settings: object) -> LocalVisionTransformer:
    return redraw(timm.create_model("local_vit_tiny", **{**TINY, **settings}), seed).eval()


@pytest.mark.parametrize("name", PAPER)
def test_counts(name: str) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    assert parameters(model) == PAPER[name]["exact_params"]
    assert round(parameters(model) / 1e6, 1) == PAPER[name]["params_m"]
    assert round(multiply_accumulates(model), 1) == PAPER[name]["macs_g"]


@pytest.mark.parametrize("size", [(32, 32), (32, 48)])
def test_any_size_forward_backward_and_features(size: tuple[int, int]) -> None:
    trains(tiny(global_pool="avg"), images(*size))
    (last,) = timm.create_model("local_vit_tiny", features_only=True, out_indices=[1], **TINY)(images(*size))
    assert last.shape == (2, 12, size[0] // 8, size[1] // 8)
    model = tiny()
    tokens, (last,) = model.forward_intermediates(images(*size), 1, norm=True)
    torch.testing.assert_close(tokens, model.forward_features(images(*size)))
    torch.testing.assert_close(last.flatten(2).transpose(1, 2), tokens[:, 1:])


def test_compile_export_and_round_trip() -> None:
    compiles_and_exports(tiny(), images(32, 48))
    round_trips(tiny(0), tiny(1), images(32, 32))


def test_heads_of_the_published_models() -> None:
    """Attention of one block by a loop over the published number of heads: 4 in Ti, 8 in S."""
    for name, heads in (("local_vit_tiny", 4), ("local_vit_small", 8)):
        attention = redraw(timm.create_model(name, img_size=32, depth=1)).blocks[0].attn
        x = torch.randn(1, 5, attention.qkv.in_features, generator=torch.Generator().manual_seed(0))
        q, k, v = attention.qkv(x).chunk(3, dim=-1)
        width = x.shape[-1] // heads
        mixed = torch.cat(
            [
                (q[..., part] @ k[..., part].mT / width**0.5).softmax(-1) @ v[..., part]
                for part in (slice(head * width, (head + 1) * width) for head in range(heads))
            ],
            dim=-1,
        )
        torch.testing.assert_close(attention(x), attention.proj(mixed), msg=name)


def test_feed_forward_by_a_loop() -> None:
    network = redraw(LocalityFeedForward(3, 6)).eval()
    x = torch.randn(1, 3, 4, 5)
    hidden = swish(norm(network.norm1, torch.einsum("oi,bihw->bohw", network.fc1.weight[..., 0, 0], x)))
    near = torch.zeros_like(hidden)
    for c in range(6):
        for i in range(4):
            for j in range(5):
                for a in (-1, 0, 1):
                    for b in (-1, 0, 1):
                        if 0 <= i + a < 4 and 0 <= j + b < 5:
                            weight = network.depthwise.weight[c, 0, a + 1, b + 1]
                            near[0, c, i, j] += weight * hidden[0, c, i + a, j + b]
    hidden = swish(norm(network.norm2, near))
    squeeze, excite = network.excite.fc1, network.excite.fc2
    gate = (squeeze.weight[..., 0, 0] @ hidden.mean((2, 3))[0] + squeeze.bias).relu()
    gate = ((excite.weight[..., 0, 0] @ gate + excite.bias + 3) / 6).clamp(0, 1)
    expected = norm(
        network.norm3, torch.einsum("oi,bihw->bohw", network.fc2.weight[..., 0, 0], hidden * gate[:, None, None])
    )
    torch.testing.assert_close(network(x), expected)


def swish(x: Tensor) -> Tensor:
    return x * ((x + 3) / 6).clamp(0, 1)


def norm(module: nn.BatchNorm2d, x: Tensor) -> Tensor:
    shape = (1, -1, 1, 1)
    mean, var = module.running_mean.view(shape), module.running_var.view(shape)
    return (x - mean) / (var + module.eps).sqrt() * module.weight.view(shape) + module.bias.view(shape)


def test_the_class_token_skips_the_feed_forward_network() -> None:
    block = tiny().blocks[0]
    x = torch.randn(2, 1 + 4 * 6, 12)
    after = block(x, (4, 6))
    attended = x + block.attn(block.norm1(x))
    torch.testing.assert_close(after[:, 0], attended[:, 0])
    patches = attended[:, 1:].transpose(1, 2).reshape(2, 12, 4, 6)
    torch.testing.assert_close(after[:, 1:], (patches + block.mlp(patches)).flatten(2).transpose(1, 2))


def test_with_the_class_token_head_the_last_feed_forward_network_gets_no_gradient() -> None:
    model = tiny()
    model(images(32, 32)).square().sum().backward()
    assert model.blocks[1].mlp.fc1.weight.grad.abs().max() == 0 < model.blocks[0].mlp.fc1.weight.grad.abs().max()


def test_settings() -> None:
    model = tiny(in_chans=1, drop_path_rate=0.3)
    assert model.blocks[1].drop_path1.drop_prob == pytest.approx(0.3)
    assert isinstance(model.blocks[1].drop_path2, nn.Identity)
    model.reset_classifier(3)
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 3)
    with pytest.raises(ValueError, match="got patch_drop_rate"):
        tiny(patch_drop_rate=0.5)
    with pytest.raises(ValueError, match="not support attention masks"):
        model(torch.randn(2, 1, 32, 32), is_causal=True)
