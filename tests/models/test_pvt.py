"""PVT: counts, its reduced attention against a loop, and one stage of it against timm's ViT."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import Tensor, nn

from cases import redraw
from cases.model_promises import compiles_and_exports, images, multiply_accumulates, parameters, round_trips, trains
from vitlab.models.pvt import PAPER, PyramidVisionTransformer

TINY = {"embed_dims": (8, 16), "num_heads": (1, 2), "mlp_ratios": (2, 2), "sr_ratios": (2, 1), "depths": (1, 2)}


def tiny(seed: int = 0, **settings: object) -> PyramidVisionTransformer:
    return redraw(timm.create_model("pvt_tiny", num_classes=7, **{"img_size": 32, **TINY, **settings}), seed).eval()


@pytest.mark.parametrize("name", PAPER)
def test_counts(name: str) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    assert parameters(model) == PAPER[name]["exact_params"]
    assert round(parameters(model) / 1e6, 1) == PAPER[name]["params_m"]
    assert round(multiply_accumulates(model), 1) == PAPER[name]["macs_g"]


@pytest.mark.parametrize("size", [(32, 32), (32, 48), (44, 36)])
def test_any_size_forward_backward_and_features(size: tuple[int, int]) -> None:
    model = tiny()
    assert model(images(*size)).shape == (2, 7)
    trains(model, images(*size))
    maps = timm.create_model("pvt_tiny", features_only=True, img_size=32, **TINY)(images(*size))
    assert [tuple(x.shape) for x in maps] == [(2, 8, size[0] // 4, size[1] // 4), (2, 16, size[0] // 8, size[1] // 8)]


def test_compile_export_and_round_trip() -> None:
    compiles_and_exports(tiny(), images(32, 48))
    round_trips(tiny(0), tiny(1), images(32, 32))


def test_reduced_attention_by_a_loop() -> None:
    """Each key is the norm of a linear map of one R×R patch; queries are all places."""
    attention = redraw(tiny(embed_dims=(8, 16), num_heads=(2, 2)).stages[0].blocks[0].attn)
    x, (h, w), r = torch.randn(1, 4 * 6, 8), (4, 6), 2
    grid = x[0].reshape(h, w, 8)
    reduced = []
    for i in range(0, h, r):
        for j in range(0, w, r):
            patch = grid[i : i + r, j : j + r]  # (r, r, D)
            reduced.append(attention.norm(torch.einsum("oiab,abi->o", attention.sr.weight, patch) + attention.sr.bias))
    k, v = attention.kv(torch.stack(reduced)).chunk(2, dim=-1)
    q = attention.q(x[0])
    heads = []
    for head in (slice(0, 4), slice(4, 8)):
        weights = (q[:, head] @ k[:, head].T / 4**0.5).softmax(-1)
        heads.append(weights @ v[:, head])
    torch.testing.assert_close(attention(x, (h, w))[0], attention.proj(torch.cat(heads, -1)))


def test_one_stage_without_reduction_is_a_vit() -> None:
    one = {"embed_dims": (8,), "num_heads": (2,), "mlp_ratios": (2,), "sr_ratios": (1,), "depths": (2,)}
    ours = tiny(**one)
    vit = timm.create_model(
        "vit_tiny_patch16_224", num_classes=7, img_size=32, patch_size=4, embed_dim=8, num_heads=2, mlp_ratio=2,
        depth=2, embed_norm_layer=nn.LayerNorm,
    ).eval()  # fmt: skip
    vit.load_state_dict(as_vit(ours))
    torch.testing.assert_close(ours(images(32, 32)), vit(images(32, 32)))


def as_vit(model: nn.Module) -> dict[str, Tensor]:
    """A state dict without the stage's name, and with packed queries, keys and values."""
    state = {name.removeprefix("stages.0."): value for name, value in model.state_dict().items()}
    for name in [name for name in state if ".q." in name]:
        state[name.replace(".q.", ".qkv.")] = torch.cat((state.pop(name), state.pop(name.replace(".q.", ".kv."))))
    return state


def test_settings() -> None:
    model = tiny(in_chans=1, drop_path_rate=0.3, global_pool="avg")
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 7)
    assert model.no_weight_decay() == {"stages.0.pos_embed", "stages.1.pos_embed", "stages.1.cls_token"}
    model.reset_classifier(3, "token")
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 3)
    with pytest.raises(ValueError, match="reduction 1"):
        tiny(sr_ratios=(2, 2))


def test_gradient_checkpointing_changes_nothing() -> None:
    model = tiny()
    x = images(32, 32).requires_grad_()
    (plain,) = torch.autograd.grad(model(x).square().sum(), x)
    model.set_grad_checkpointing()
    (again,) = torch.autograd.grad(model(x).square().sum(), x)
    torch.testing.assert_close(plain, again)
