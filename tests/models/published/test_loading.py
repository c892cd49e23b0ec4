"""Released checkpoints by model expression: each tensor arrives in the model, and mistakes are one line."""

from __future__ import annotations

import argparse
import gzip
import json
import re
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vitlab
from vitlab.core.errors import VitlabError
from vitlab.identity import identify

LISTS = json.loads(gzip.decompress(Path(__file__).with_name("keys.json.gz").read_bytes()))
TAP = " | TokenAwarePooling(branches=4)"

#: Released model -> layout, our model, its parts, and where some tensors go (published -> ours; `+` joins two).
CASES: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "fan_tiny_12_p16_224": ("FAN", "fan_tiny_vit", "", {
        "blocks.3.attn.q.weight+blocks.3.attn.kv.weight": "blocks.3.attn.qkv.weight",
        "blocks.3.mlp.mlp_v.dwconv.conv1.weight": "blocks.3.mlp.mlp.depthwise.conv1.weight",
        "blocks.3.mlp.norm_v.bias": "blocks.3.mlp.norm.bias", "cls_token": "cls_token",
    }),
    "tap_fan_tiny_8_p4_hybrid": ("FAN", "fan_tiny_hybrid", TAP, {
        "patch_embed.backbone.stages.1.blocks.2.mlp.fc1.weight": "patch_embed.stages.1.blocks.2.mlp.fc1.weight",
        "blocks.7.dilation_predictor.proj.0.weight": "blocks.7.norm1.vitlab_token_aware_pooling.predictor.0.weight",
        "blocks.7.dilation_predictor.proj.1.running_var":
            "blocks.7.norm1.vitlab_token_aware_pooling.predictor.1.running_var",
    }),
    "rvt_tiny_plus": ("RVT", "rvt_tiny_plus", "", {
        "transformers.0.blocks.9.attn.att_mask": "stages.0.blocks.9.attn.position_importance",
        "pools.0.conv.weight": "stages.1.downsample.weight", "patch_embed.proj.3.bias": "patch_embed.proj.bias",
        "transformers.1.blocks.1.mlp.bn2.weight": "stages.1.blocks.1.mlp.norm2.weight",
    }),
    "tap_rvt_tiny": ("RVT", "rvt_tiny", TAP, {
        "transformers.1.blocks.0.dilation_predictor.proj.2.weight":
            "stages.1.blocks.0.norm1.vitlab_token_aware_pooling.predictor.2.weight",
    }),
    "alternet_18_cifar100_window4": ("AlterNet and pre-activation ResNet", "alternet18_cifar", "", {
        "layer4.1.attn.attn.to_q.weight+layer4.1.attn.attn.to_kv.weight": "stages.3.1.attn.qkv.weight",
        "layer4.1.attn.pos_embedding": "stages.3.1.attn.relative_position_bias",
    }),
    "alternet_18_cifar100": ("AlterNet and pre-activation ResNet", "alternet18_cifar(window_size=7)", "", {
        "layer4.1.attn.pos_embedding": "stages.3.1.attn.relative_position_bias",
    }),
    "resnet_50_cifar100": (
        "ResNet", "alternet50_cifar(depths=(3, 4, 6, 3), plan=(0, 0, 0, 0), base='resnet')", "", {
            "layer3.0.shortcut.1.running_mean": "stages.2.0.downsample.1.running_mean",
            "layer0.1.bias": "stem.norm.bias", "classifier.0.dense.weight": "head.fc.weight",
        },
    ),
    "preresnet_18_cifar100": ("AlterNet and pre-activation ResNet", "preact_resnet18_cifar", "", {
        "layer2.0.shortcut.0.weight": "stages.1.0.downsample.conv.weight",
        "layer1.1.bn.weight": "stages.0.1.norm1.weight",
    }),
    "pvt_tiny": ("PVT", "pvt_tiny", "", {
        "pos_embed2": "stages.1.pos_embed", "cls_token": "stages.3.cls_token",
        "block4.1.attn.kv.weight": "stages.3.blocks.1.attn.kv.weight",
    }),
    "t2t_vit_t_14": ("T2T-ViT", "t2t_vit_t_24(embed_dim=384, depth=14, num_heads=6)", "", {
        "tokens_to_token.attention2.norm1.weight": "patch_embed.layer2.norm1.weight", "pos_embed": "pos_embed",
    }),
    "localvit_tiny_mlp4_act3_r192": ("LocalViT", "local_vit_tiny", "", {
        "blocks.5.conv.conv.3.weight": "blocks.5.mlp.depthwise.weight",
        "blocks.5.conv.conv.6.fc.2.weight": "blocks.5.mlp.excite.fc2.weight",
    }),
    "pit_ti_cifar100": ("PiT", "pit_tiny_cifar", "", {
        "transformers.1.pool.conv.weight": "transformers.2.pool.conv.weight",
    }),
    "swin_ti_cifar100": ("Swin", "swin_tiny_cifar", "", {
        "layers.0.downsample.reduction.weight": "layers.1.downsample.reduction.weight", "head.bias": "head.fc.bias",
    }),
}  # fmt: skip


def checkpoint(name: str) -> dict[str, Tensor]:
    """Random positive tensors of the released keys and shapes; counters are distinct whole numbers."""
    generator = torch.Generator().manual_seed(0)
    return {
        key: torch.rand(shape, generator=generator) if shape else torch.tensor(i)
        for i, (key, shape) in enumerate(LISTS[name].items())
    }


def expression(model: str, path: Path | str, parts: str = "") -> str:
    name, _, settings = model.partition("(")
    return f"vitlab/{name}({settings.removesuffix(')')}{', ' if settings else ''}weights={str(path)!r}){parts}"


def start(tensor: Tensor) -> tuple[float, ...]:
    return tuple(tensor.flatten()[:4].tolist())


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_is_loaded(name: str, tmp_path: Path) -> None:
    layout, model_name, parts, places = CASES[name]
    given, path = checkpoint(name), tmp_path / "released.pth"
    torch.save({"state_dict": given}, path)
    model = vitlab.load(expression(model_name, path, parts))
    own = model.state_dict()
    for published, ours in places.items():
        expected = torch.cat([given[key] for key in published.split("+")])
        assert torch.equal(own[ours].flatten(), expected.flatten()), ours

    # Each tensor of the model is one released tensor, or two joined; each released tensor is used once.
    unused = {start(tensor): key for key, tensor in given.items()}
    for key, tensor in own.items():
        source = given[unused.pop(start(tensor))].flatten()
        rest = tensor.flatten()
        assert torch.equal(rest[: len(source)].to(source.dtype), source), key
        rest = rest[len(source) :]
        if len(rest):
            assert torch.equal(rest, given[unused.pop(start(rest))].flatten()), key
    assert {key for key in unused.values() if not key.endswith(("attn_mask", "relative_position_index"))} == set()
    assert identify(model).origin == f"file: {path} (published layout {layout})"


@pytest.mark.parametrize(
    ("entry", "prefix"),
    [("state_dict", "module."), ("model", ""), ("state_dict_ema", "module."), (None, "_orig_mod.")],
)
def test_entries_and_prefixes(entry: str | None, prefix: str, tmp_path: Path) -> None:
    given, path = checkpoint("pit_ti_cifar100"), tmp_path / "released.pth.tar"
    weights = {prefix + key: tensor for key, tensor in given.items()}
    torch.save({entry: weights, "args": argparse.Namespace(lr=0.1), "epoch": 3} if entry else weights, path)
    model = vitlab.load(expression("pit_tiny_cifar", path))
    assert torch.equal(model.state_dict()["pos_embed"], given["pos_embed"])


def test_other_classes_keep_a_random_head(tmp_path: Path) -> None:
    path = tmp_path / "released.pth"
    torch.save(checkpoint("pit_ti_cifar100"), path)
    with pytest.warns(UserWarning, match="another number of classes"):
        model = vitlab.load(expression("pit_tiny_cifar(num_classes=7)", path))
    assert identify(model).origin == f"file: {path} (published layout PiT) (random head)"
    assert identify(model).untrained


def test_a_file_in_our_layout_is_not_converted(tmp_path: Path) -> None:
    model, path = vitlab.load("vitlab/pit_tiny_cifar", seed=3), tmp_path / "ours.pth"
    torch.save(model.state_dict(), path)
    again = vitlab.load(expression("pit_tiny_cifar", path))
    assert identify(again).weights == identify(model).weights
    assert identify(again).origin == f"file: {path}"


@pytest.mark.parametrize(
    ("name", "given", "fits"),
    [
        ("rvt_tiny", "fan_tiny_vit", "vitlab/rvt_tiny({w})"),  # another family
        ("fan_tiny_12_p16_224", "fan_tiny_hybrid", "vitlab/fan_tiny_vit({w})"),  # another size
        ("tap_fan_tiny_8_p4_hybrid", "fan_tiny_hybrid", "vitlab/fan_tiny_hybrid({w})" + TAP),  # no part
        (
            "tap_fan_tiny_8_p4_hybrid",
            "fan_tiny_hybrid | TokenAwarePooling(branches=5)",
            "vitlab/fan_tiny_hybrid({w})" + TAP,
        ),
        ("rvt_tiny", "rvt_tiny | TokenAwarePooling", "vitlab/rvt_tiny({w})"),  # a part that the file does not have
        ("alternet_18_cifar100", "alternet18_cifar", "vitlab/alternet18_cifar(window_size=7, {w})"),  # another window
        ("t2t_vit_t_14", "t2t_vit_t_24", "vitlab/t2t_vit_t_24(embed_dim=384, depth=14, num_heads=6, {w})"),
    ],
)
def test_weights_that_do_not_fit_name_the_models_that_do(name: str, given: str, fits: str, tmp_path: Path) -> None:
    path = tmp_path / "released.pth"
    torch.save(checkpoint(name), path)
    model, bar, parts = given.partition(" |")
    written = expression(model, path, bar + parts)
    with pytest.raises(VitlabError) as caught:
        vitlab.load(written)
    line = str(caught.value)
    assert "\n" not in line
    assert line.endswith("; it fits " + fits.format(w=f"weights={str(path)!r}"))
    assert re.search(r"published layout [\w\- ]+\) does not fit vitlab/", line)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vitlab.load(line.partition("; it fits ")[2])  # what it says to write works


@pytest.mark.parametrize("change", ["unexpected", "missing"])
def test_weights_that_fit_no_model_name_the_tensor(change: str, tmp_path: Path) -> None:
    path, tensors = tmp_path / "released.pth", checkpoint("pvt_tiny")
    if change == "unexpected":
        tensors["another.weight"] = torch.zeros(3)
    else:
        del tensors["block1.0.attn.q.weight"]
    torch.save(tensors, path)
    named = {"unexpected": "another.weight", "missing": r"stages\.0\.blocks\.0\.attn\.q\.weight"}[change]
    with pytest.raises(VitlabError, match=f"fits no model of vitlab: .* 1 {change} tensors: {named}$"):
        vitlab.load(expression("pvt_tiny", path))


def test_pooling_that_starts_as_the_identity_is_added_to_released_weights(tmp_path: Path) -> None:
    path = tmp_path / "released.pth"
    torch.save(checkpoint("rvt_tiny"), path)
    model = vitlab.load(expression("rvt_tiny", path, " | TokenAwarePooling(identity_init=True)"))
    assert len(vitlab.parts(model)) == 12
    assert identify(model).origin == f"file: {path} (published layout RVT)"


def test_released_weights_for_a_model_of_another_library(tmp_path: Path) -> None:
    path = tmp_path / "released.pth"
    torch.save(checkpoint("rvt_tiny"), path)
    with pytest.raises(VitlabError, match=r"published layout RVT\) does not fit timm/vit_tiny_patch16_224.*rvt_tiny"):
        vitlab.load(f"timm/vit_tiny_patch16_224(weights={str(path)!r})")
