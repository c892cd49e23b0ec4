"""Weight files: formats, entries, prefixes, other numbers of classes, and files with and without parts."""

from __future__ import annotations

import argparse
import re
import warnings
import zipfile
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import vitlab
from vitlab import zoo
from vitlab.checkpoints import read_weights
from vitlab.core.errors import VitlabError
from vitlab.core.store import write_tensors
from vitlab.identity import identify

SIZE = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 7}
NAME = "timm/vit_tiny_patch16_224"


def text(**more: object) -> str:
    return f"{NAME}({', '.join(f'{key}={value!r}' for key, value in {**SIZE, **more}.items())})"


def reference(seed: int = 3, **more: object) -> nn.Module:
    torch.manual_seed(seed)
    return timm.create_model("vit_tiny_patch16_224", **{**SIZE, **more})


def equal(model: nn.Module, state: dict[str, Tensor]) -> bool:
    own = model.state_dict()
    return own.keys() == state.keys() and all(torch.equal(own[name], state[name]) for name in own)


@pytest.mark.parametrize("suffix", ["pth", "pt", "bin", "ckpt"])
@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_of_torch_save(suffix: str, legacy: bool, tmp_path: Path) -> None:
    state, path = reference().state_dict(), tmp_path / f"model.{suffix}"
    torch.save(state, path, _use_new_zipfile_serialization=not legacy)
    model = vitlab.load(text(weights=str(path)))
    assert equal(model, state) and identify(model).origin == f"file: {path}"


@pytest.mark.parametrize("entry", ["state_dict", "model", "model_ema", "state_dict_ema"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "model."])
def test_a_training_checkpoint_with_options_and_prefixes(entry: str, prefix: str, tmp_path: Path) -> None:
    state, path = reference().state_dict(), tmp_path / "checkpoint.pth.tar"
    kept = {prefix + name: tensor for name, tensor in state.items()}
    torch.save({"epoch": 3, entry: kept, "args": argparse.Namespace(lr=0.1), "best": 71.5}, path)
    assert equal(vitlab.load(text(weights=str(path))), state)


def test_averaged_weights_are_taken_when_asked_for(tmp_path: Path) -> None:
    raw, averaged, path = reference(1).state_dict(), reference(2).state_dict(), tmp_path / "both.pth"
    torch.save({"model": raw, "model_ema": averaged}, path)
    with pytest.warns(UserWarning, match="under model, model_ema; using model"):
        assert equal(vitlab.load(text(weights=str(path))), raw)
    assert equal(vitlab.load(text(weights=str(path), weights_entry="model_ema")), averaged)
    with pytest.raises(VitlabError, match=r"no entry with weights in .*both.pth 'modle' \(did you mean 'model'\?\)"):
        vitlab.load(text(weights=str(path), weights_entry="modle"))


def test_files_without_weights_raise(tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    for content in ([1, 2], {"epoch": 3}, {}):
        torch.save(content, path)
        with pytest.raises(VitlabError, match="contains no state dict"):
            read_weights(path)
    path.write_bytes(b"no weights at all")
    with pytest.raises(VitlabError, match="cannot be read with weights_only=True"):
        read_weights(path)
    torch.save({"a": torch.zeros(1)}, path)
    with zipfile.ZipFile(path) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in contents.items():  # a pickle of {[]: 1}: the key cannot be hashed
            file.writestr(name, b"\x80\x02}]K\x01s." if name.endswith("data.pkl") else content)
    with pytest.raises(VitlabError, match="cannot be read with weights_only=True .*unhashable"):
        read_weights(path)
    save_file(reference().state_dict(), tmp_path / "a.safetensors")
    with pytest.raises(VitlabError, match="invalid weights_entry='model' .* files of torch.save"):
        read_weights(tmp_path / "a.safetensors", "model")


# -- another number of classes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "head"),
    [
        (text(num_classes=4), ["head.weight", "head.bias"]),
        ("timm/deit_tiny_distilled_patch16_224(" + text(num_classes=4).partition("(")[2], None),
        ("torchvision/squeezenet1_1(num_classes=4)", ["classifier.1.weight", "classifier.1.bias"]),
        ("torchvision/resnet18(num_classes=4)", ["fc.weight", "fc.bias"]),
    ],
)
def test_another_number_of_classes_leaves_the_head_random(
    expression: str, head: list[str] | None, tmp_path: Path
) -> None:
    head = head or [f"{name}.{kind}" for name in ("head", "head_dist") for kind in ("weight", "bias")]
    path = tmp_path / "seven.safetensors"
    source = vitlab.load(expression.replace("num_classes=4", "num_classes=7"), seed=1).state_dict()
    save_file(source, path)
    with pytest.warns(UserWarning, match=re.escape(", ".join(head)) + " keep their random initial values"):
        model = vitlab.load(f"{expression[:-1]}, weights={str(path)!r})", seed=2)
    fresh = vitlab.load(expression, seed=2).state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, fresh[name] if name in head else source[name]), name
    assert identify(model).origin == f"file: {path} (random head)" and identify(model).untrained


def test_another_number_of_labels_of_hugging_face(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48}
    config = transformers.ViTConfig(**size, image_size=32, patch_size=8, num_labels=7)
    source = transformers.ViTForImageClassification(config)
    source.save_pretrained(tmp_path / "vit")
    path = tmp_path / "seven.safetensors"
    save_file(source.state_dict(), path)
    with pytest.warns(UserWarning, match="classifier.weight, classifier.bias keep their random initial values"):
        model = vitlab.load(f"hf/{tmp_path}/vit(num_labels=4, weights={str(path)!r})")
    ours, theirs = model.state_dict(), source.state_dict()
    assert ours["classifier.weight"].shape == (4, 24)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs if not name.startswith("classifier"))


@pytest.mark.parametrize(
    "other", [{"embed_dim": 12}, {"depth": 3}, {"depth": 1}, {"mlp_ratio": 2.0}, {"patch_size": 16}]
)
def test_other_mismatches_raise(other: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file(reference(**other, num_classes=4).state_dict(), path)
    with pytest.raises(VitlabError, match="does not fit VisionTransformer") as caught:
        vitlab.load(text(weights=str(path)))
    assert "\n" not in str(caught.value)


# -- parts -------------------------------------------------------------------------------------------------------------


def saved(expression: str, path: Path, drop: str = "nothing") -> dict[str, Tensor]:
    state = {name: t for name, t in vitlab.load(expression, seed=1).state_dict().items() if drop not in name}
    save_file(state, path)
    return state


@pytest.mark.parametrize("part", ["ContextBroadcast", "LocalAttention(kernel=3)", "ScaledContextBroadcast"])
def test_weights_with_a_part_need_the_part(part: str, tmp_path: Path) -> None:
    path, name = tmp_path / "fitted.safetensors", part.partition("(")[0]
    state = saved(f"{text()} | {part}", path)
    with pytest.raises(VitlabError, match=rf"saved with {name} at .*not have there; add ' \| {name}\("):
        vitlab.load(text(weights=str(path)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert equal(vitlab.load(f"{text(weights=str(path))} | {part}"), state)


def test_weights_without_a_part_name_it(tmp_path: Path) -> None:
    plain, scaled = tmp_path / "plain.safetensors", tmp_path / "scaled.safetensors"
    saved(text(), plain)
    changed = r"ContextBroadcast changed the outputs of trained weights \(file: .*plain.safetensors\) by \d+% on noise"
    with pytest.warns(UserWarning, match=changed):
        model = vitlab.load(f"{text(weights=str(plain))} | ContextBroadcast")
    assert len(vitlab.parts(model)) == 2
    saved(f"{text()} | ScaledContextBroadcast", scaled)
    with pytest.raises(VitlabError, match="saved without TokenAwarePooling, which the model has"):
        vitlab.load(f"{text(weights=str(scaled))} | ScaledContextBroadcast | TokenAwarePooling")


@pytest.mark.parametrize("part", ["ContextBroadcast", "LocalAttention(kernel=3)"])
def test_a_file_without_markers_loads_with_a_warning(part: str, tmp_path: Path) -> None:
    expression, new, old = f"{text()} | {part}", tmp_path / "new.safetensors", tmp_path / "old.safetensors"
    zoo.save(vitlab.load(expression, seed=1), expression, str(new))
    state, about = read_weights(new)
    markers = [name for name, tensor in state.items() if not tensor.numel()]
    assert len(markers) == 2
    write_tensors(old, {name: tensor for name, tensor in state.items() if name not in markers}, about)
    with pytest.warns(UserWarning, match=f"no marker of {part.partition('(')[0]}"):
        loaded = vitlab.load(f"file/{old}")
    assert equal(loaded, vitlab.load(f"file/{new}").state_dict())
    assert identify(loaded).weights == identify(vitlab.load(f"file/{new}")).weights


def test_a_run_folder_loads_its_last_weights(tmp_path: Path) -> None:
    model = vitlab.load(text(), seed=1)
    zoo.save(model, text(), str(tmp_path / "run" / "model.safetensors"))
    assert equal(vitlab.load(f"file/{tmp_path}/run"), model.state_dict())
