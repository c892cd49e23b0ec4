"""Released weights: every list of keys and shapes is converted to the state dict of the model."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor, nn

import vitlab
import vitlab.models
from vitlab.core.errors import VitlabError
from vitlab.models.alternet import WindowAttention
from vitlab.models.fan import FullyAttentionalBlock
from vitlab.models.published import LAYOUTS, layout_of

LISTS = Path(__file__).with_name("keys.json.gz")
PLAN = {"plan": (0, 1, 3, 2)}
T2T = {"t2t_vit_t_14": (384, 14, 6), "t2t_vit_t_19": (448, 19, 7), "t2t_vit_t_24": (512, 24, 8)}

#: Released model -> ours and its settings; those that begin with `tap_` have token-aware pooling.
OURS: dict[str, tuple[str, dict]] = {
    "fan_tiny_12_p16_224": ("fan_tiny_vit", {}),
    "fan_small_12_p16_224": ("fan_small_vit", {}),
    "fan_base_18_p16_224": ("fan_base_vit", {}),
    "fan_large_24_p16_224": ("fan_large_vit", {}),
    "fan_tiny_8_p4_hybrid": ("fan_tiny_hybrid", {}),
    "fan_small_12_p4_hybrid": ("fan_small_hybrid", {}),
    "fan_base_16_p4_hybrid": ("fan_base_hybrid", {}),
    "fan_large_16_p4_hybrid": ("fan_large_hybrid", {}),
    **{f"rvt_{size}{plus}": (f"rvt_{size}{plus}", {}) for size in ("tiny", "small") for plus in ("", "_plus")},
    "rvt_base": ("rvt_base", {}),
    "rvt_base_plus": ("rvt_base_plus_released", {}),
    **{f"pvt_{size}": (f"pvt_{size}", {}) for size in ("tiny", "small", "medium", "large")},
    **{
        name: ("t2t_vit_t_24", {"embed_dim": width, "depth": depth, "num_heads": heads})
        for name, (width, depth, heads) in T2T.items()
    },
    "localvit_tiny_mlp4_act3_r192": ("local_vit_tiny", {}),
    "localvit_small_mlp4_act3_r384": ("local_vit_small", {}),
    **{f"alternet_{depth}_imagenet": (f"alternet{depth}", {}) for depth in (18, 34, 50, 101)},
    "alternet_18_cifar100_window4": ("alternet18_cifar", {}),
    "alternet_34_cifar100_window4": ("alternet34_cifar", PLAN),
    "alternet_50_cifar100_window4": ("alternet50_cifar_released", {}),
    "alternet_101_cifar100_window4": ("alternet101_cifar", PLAN),
    **{
        f"alternet_{depth}_cifar100": (f"alternet{depth}_cifar", {"window_size": 7, **({} if depth == 18 else PLAN)})
        for depth in (18, 34, 50, 101)
    },
    "resnet_50_cifar100": ("alternet50_cifar", {"depths": (3, 4, 6, 3), "plan": (0, 0, 0, 0), "base": "resnet"}),
    **{f"preresnet_{depth}_imagenet": (f"preact_resnet{depth}", {}) for depth in (18, 34, 50, 101)},
    **{f"preresnet_{depth}_cifar100": (f"preact_resnet{depth}_cifar", {}) for depth in (18, 34, 50, 101)},
    "pit_ti_cifar100": ("pit_tiny_cifar", {}),
    "swin_ti_cifar100": ("swin_tiny_cifar", {}),
}
#: TAPADL's RVT-B has the convolutional MLP.
OURS |= {
    f"tap_{name}": (ours, {**settings, **({"conv_mlp": True} if "rvt_base" in name else {})})
    for name, (ours, settings) in OURS.items()
    if name.startswith(("fan_", "rvt_"))
}
#: In the lists, and no model of ours: other feed-forward networks; the same keys as ours.
OTHERS = {"localvit_tiny_mlp4_act3_r4", "localvit_tiny_mlp6_act1", "vit_ti_cifar100"}
#: The classes of HDVW's own code, of which no weights were published: refused, each with its name.
REFUSED = {
    "howdo_vit_ti_cifar100": "ViT or Mixer",
    "howdo_vit_s_cifar100": "ViT or Mixer",
    "howdo_vit_ti_imagenet": "ViT or Mixer",
    "howdo_mixer_ti_cifar100": "ViT or Mixer",
    "howdo_pit_ti_cifar100": "PiT",
    "howdo_swin_t_cifar100_pools1222_window4": "SwinTransformer",
}


@cache
def lists() -> dict[str, dict[str, list[int]]]:
    """Released model -> key -> shape."""
    return json.loads(gzip.decompress(LISTS.read_bytes()))


def released(name: str, device: str = "meta") -> dict[str, Tensor]:
    return {key: torch.empty(shape, device=device) for key, shape in lists()[name].items()}


def convert(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    layout = layout_of(tensors)
    assert layout is not None
    return layout.convert(tensors)


def model_of(name: str) -> nn.Module:
    ours, settings = OURS[name]
    with torch.device("meta"):
        model = timm.create_model(ours, **settings)
    return vitlab.retrofit(model, "TokenAwarePooling(branches=4)") if name.startswith("tap_") else model


def test_every_list_is_converted_or_listed_as_unsupported() -> None:
    assert set(lists()) == set(OURS) | OTHERS | set(REFUSED)


@pytest.mark.parametrize("name", OURS)
def test_no_key_is_missing_extra_or_misshaped(name: str) -> None:
    converted = convert(released(name))
    state = {key: tuple(tensor.shape) for key, tensor in model_of(name).state_dict().items()}
    assert {key: tuple(tensor.shape) for key, tensor in converted.items()} == state


@pytest.mark.parametrize("name", [*OURS, *REFUSED])
def test_each_list_has_one_mark(name: str) -> None:
    assert sum(layout.mark in lists()[name] for layout in LAYOUTS) == 1


@pytest.mark.parametrize(
    "name",
    ["tap_fan_tiny_8_p4_hybrid", "alternet_18_cifar100_window4", "resnet_50_cifar100", "rvt_tiny_plus", "pvt_tiny"],
)
def test_the_numbers_are_the_released_ones(name: str) -> None:
    """Each tensor has a unique value: none is lost or duplicated, and each keeps its number of elements."""
    tensors = {key: torch.full(shape, float(i)) for i, (key, shape) in enumerate(lists()[name].items())}
    before, after = torch.zeros(len(tensors)), torch.zeros(len(tensors))
    for counts, given in ((before, tensors), (after, convert(tensors))):
        for tensor in given.values():
            values, times = tensor.unique(return_counts=True)
            counts[values.long()] += times
    assert torch.equal(before, after)


def test_inputs_are_not_changed() -> None:
    given = released("t2t_vit_t_14")
    keys = list(given)
    convert(given)
    assert list(given) == keys


def draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator)


def test_fan_attention_packs_queries_before_keys_and_values() -> None:
    """The released form, two projections, by hand: q from one, k and v from the other, in this order."""
    generator, width, heads = torch.Generator().manual_seed(0), 8, 2
    shapes = {"q.weight": (8, 8), "q.bias": (8,), "kv.weight": (16, 8), "kv.bias": (16,)}
    shapes |= {"proj.weight": (8, 8), "proj.bias": (8,)}
    given = {f"blocks.0.attn.{key}": draw(shape, generator) for key, shape in shapes.items()}
    x = draw((2, 5, width), generator)
    q = x @ given["blocks.0.attn.q.weight"].T + given["blocks.0.attn.q.bias"]
    k, v = (x @ given["blocks.0.attn.kv.weight"].T + given["blocks.0.attn.kv.bias"]).chunk(2, dim=-1)
    q, k, v = (t.reshape(2, 5, heads, -1).transpose(1, 2) for t in (q, k, v))
    mixed = ((q @ k.mT / (width / heads) ** 0.5).softmax(-1) @ v).transpose(1, 2).reshape(2, 5, width)
    expected = mixed @ given["blocks.0.attn.proj.weight"].T + given["blocks.0.attn.proj.bias"]

    mark = {"blocks.0.mlp.mlp_v.fc1.weight": torch.zeros(1)}
    converted = convert({**given, **mark})
    attention = FullyAttentionalBlock(width, heads).attn
    attention.load_state_dict(
        {key.removeprefix("blocks.0.attn."): t for key, t in converted.items() if ".attn." in key}
    )
    torch.testing.assert_close(attention(x), expected)


def test_alternet_attention_by_hand() -> None:
    """One window: 1×1 convolutions for q and for k and v, one table of relative positions, indexed key − query."""
    generator, heads, width = torch.Generator().manual_seed(0), 3, 4
    shapes = {
        "pos_embedding": (3, 3), "attn.to_q.weight": (12, 5, 1, 1), "attn.to_kv.weight": (24, 5, 1, 1),
        "attn.to_out.0.weight": (7, 12, 1, 1), "attn.to_out.0.bias": (7,),
    }  # fmt: skip
    given = {f"layer4.1.attn.{key}": draw(shape, generator) for key, shape in shapes.items()}
    x = draw((1, 5, 2, 2), generator)
    tokens = x.flatten(2).mT[0]  # (4, 5)
    q = tokens @ given["layer4.1.attn.attn.to_q.weight"][..., 0, 0].T
    k, v = (tokens @ given["layer4.1.attn.attn.to_kv.weight"][..., 0, 0].T).chunk(2, dim=-1)
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    table = given["layer4.1.attn.pos_embedding"]
    bias = torch.tensor([[table[b[0] - a[0] + 1, b[1] - a[1] + 1] for b in places] for a in places])
    parts = [slice(head * width, (head + 1) * width) for head in range(heads)]
    mixed = torch.cat([(q[:, p] @ k[:, p].T / width**0.5 + bias).softmax(-1) @ v[:, p] for p in parts], dim=-1)
    expected = mixed @ given["layer4.1.attn.attn.to_out.0.weight"][..., 0, 0].T
    expected = (expected + given["layer4.1.attn.attn.to_out.0.bias"]).T.reshape(1, 7, 2, 2)

    converted = convert({**given, "classifier.0.bn.weight": torch.zeros(1)})
    attention = WindowAttention(5, 7, num_heads=heads, head_dim=width, window_size=2)
    start = "stages.3.1.attn."
    attention.load_state_dict({key.removeprefix(start): t for key, t in converted.items() if key.startswith(start)})
    torch.testing.assert_close(attention(x), expected)


@pytest.mark.parametrize("name", REFUSED)
def test_weights_of_unsupported_classes_raise_with_their_name(name: str) -> None:
    message = rf"weights of the class {REFUSED[name]} of how-do-vits-work's own code, which are not converted \(.*"
    with pytest.raises(VitlabError, match=message + "expected weights in timm's layout"):
        convert(released(name))


def test_the_released_vit_of_cifar_has_our_keys() -> None:
    with torch.device("meta"):
        own = timm.create_model("vit_tiny_cifar").state_dict()
    assert {key: list(tensor.shape) for key, tensor in own.items()} == lists()["vit_ti_cifar100"]


def test_resnet_computes_what_the_released_block_computes() -> None:
    """A bottleneck of stage 2 by hand: 1×1, 3×3 with stride 2, 1×1, each with its norm; the shortcut has a norm too."""
    generator = torch.Generator().manual_seed(0)
    given = {
        key: torch.rand(shape, generator=generator) if shape else torch.tensor(0)
        for key, shape in lists()["resnet_50_cifar100"].items()
    }
    ours, settings = OURS["resnet_50_cifar100"]
    model = timm.create_model(ours, **settings).eval()
    model.load_state_dict(convert(given))

    def normed(x: Tensor, place: str) -> Tensor:
        mean, variance, weight, bias = (
            given[f"{place}.{k}"] for k in ("running_mean", "running_var", "weight", "bias")
        )
        return torch.nn.functional.batch_norm(x, mean, variance, weight, bias)

    def layer(x: Tensor, place: str, stride: int = 1) -> Tensor:
        kernel = given[f"{place}.0.weight"]
        moved = torch.nn.functional.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        return normed(moved, f"{place}.1")

    x = torch.randn((1, 256, 6, 6), generator=generator)
    block = "layer2.0"
    inner = layer(layer(x, f"{block}.conv1").relu(), f"{block}.conv2", 2).relu()
    expected = (layer(inner, f"{block}.conv3") + layer(x, f"{block}.shortcut", 2)).relu()
    torch.testing.assert_close(model.stages[1][0](x), expected, rtol=1e-4, atol=1e-4)


def test_other_weights_have_no_layout() -> None:
    assert layout_of({"a": torch.zeros(1), "b": torch.zeros(1)}) is None and layout_of({}) is None


def test_weights_without_squeeze_and_excitation_raise() -> None:
    with pytest.raises(VitlabError, match="no squeeze-and-excitation"):
        convert(released("localvit_tiny_mlp6_act1"))
