"""The zoo: models from expressions of all sources, and one-line errors."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import vitlab
from vitlab import zoo
from vitlab.core.errors import VitlabError
from vitlab.identity import identify

VIT = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=7)"
PARTS = "ContextBroadcast(blocks='upper') | TokenAwarePooling(branches=2) | ScaledContextBroadcast(init=0.5)"


def logits(model: nn.Module, side: int = 32) -> Tensor:
    images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        output = model.eval()(images)
    return getattr(output, "logits", output)


def fails(expression: str, message: str) -> None:
    """Check that loading raises a one-line error that contains this text."""
    with pytest.raises(VitlabError, match=re.escape(message)) as caught:
        vitlab.load(expression)
    assert "\n" not in str(caught.value)


# -- sources -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "side", "classes"),
    [
        (VIT, 32, 7),
        ("vitlab/alternet50_cifar(depths=(2, 2), plan=(0, 1), heads=(2, 2), width=16, num_classes=7)", 32, 7),
        ("torchvision/resnet18(num_classes=7)", 32, 7),
    ],
)
def test_each_source_builds_its_models(expression: str, side: int, classes: int) -> None:
    model = vitlab.load(expression)
    assert model.training and logits(model, side).shape == (2, classes)


def test_settings_and_seed_equal_those_of_the_library() -> None:
    torch.manual_seed(3)
    settings = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 7}
    reference = timm.create_model("vit_tiny_patch16_224", **settings)
    assert torch.equal(logits(vitlab.load(VIT, seed=3)), logits(reference))


def test_a_seed_is_reproducible_and_keeps_the_random_state() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again, other = (vitlab.load(VIT, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(logits(first), logits(again)) and not torch.equal(logits(first), logits(other))
    vitlab.load(VIT)
    assert not torch.equal(torch.get_rng_state(), before)  # without a seed the global random state is used, as in timm


def test_hugging_face_from_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48}
    config = transformers.ViTConfig(**size, image_size=32, patch_size=8, num_labels=7)
    reference = transformers.ViTForImageClassification(config)
    reference.save_pretrained(tmp_path / "vit")
    pretrained = vitlab.load(f"hf/{tmp_path}/vit(pretrained=True)")
    assert type(pretrained) is type(reference) and torch.equal(logits(pretrained), logits(reference))
    random = vitlab.load(f"hf/{tmp_path}/vit")
    assert not torch.equal(logits(random), logits(reference))
    deeper = vitlab.load(f"hf/{tmp_path}/vit(num_hidden_layers=3)")
    assert deeper.config.num_hidden_layers == 3
    with_part = vitlab.load(f"hf/{tmp_path}/vit(pretrained=True) | ContextBroadcast")
    assert not torch.equal(logits(with_part), logits(reference))
    fails(f"hf/{tmp_path}/nothing", "could not be built")


def test_names_of_vitlab_and_timm_are_disjoint() -> None:
    ours, theirs = zoo.model_names("vitlab"), zoo.model_names("timm")
    assert "rvt_tiny" in ours and "deit_tiny_patch16_224" in theirs and not set(ours) & set(theirs)
    assert "vit_b_16" in zoo.model_names("torchvision") and zoo.model_names("hf") == zoo.model_names("file") == []
    assert not any("segmentation" in name or "fcos" in name for name in zoo.model_names("torchvision"))


# -- weights -----------------------------------------------------------------------------------------------------------


def test_save_and_load_with_parts(tmp_path: Path) -> None:
    expression, path = f"{VIT} | {PARTS}", tmp_path / "my models (1)" / "best.safetensors"
    model = vitlab.load(expression)
    zoo.save(model, expression, str(path))
    again = vitlab.load(f"file/{path}")
    assert torch.equal(logits(again), logits(model))
    assert list(again.state_dict()) == list(model.state_dict())
    more = vitlab.load(f"file/{path} | ContextBroadcast(at='attn.out')")
    assert not torch.equal(logits(more), logits(model))
    assert torch.equal(logits(vitlab.restore(again)), logits(vitlab.restore(model)))


def test_weights_of_a_plain_file(tmp_path: Path) -> None:
    path = tmp_path / "plain.safetensors"
    reference = vitlab.load(VIT, seed=1)
    save_file(reference.state_dict(), path)
    assert torch.equal(logits(vitlab.load(f"{VIT[:-1]}, weights={str(path)!r})")), logits(reference))
    fails(f"file/{path}", "no model expression")


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"head.weight": torch.zeros(2, 2)}, path)
    fails(f"{VIT[:-1]}, weights={str(path)!r})", "does not fit VisionTransformer")
    fails(f"{VIT[:-1]}, weights={str(path)!r}, pretrained=True)", "both weights= and pretrained=True")
    fails(f"{VIT[:-1]}, weights={str(tmp_path / 'gone')!r})", "there is no file")
    fails(f"{VIT[:-1]}, weights=True)", "(weights=True): expected text in quotes")
    fails(f"{VIT[:-1]}, weights='')", "names no file of weights; write weights='FILE'")
    fails(f"{VIT[:-1]}, weights_entry='model')", "names no file of weights; write weights='FILE'")


class _Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return _go_off, (str(self.path),)


def _go_off(path: str) -> None:
    Path(path).write_text("unpickled")


def test_a_pickled_checkpoint_raises_and_is_never_unpickled(tmp_path: Path) -> None:
    path, mark = tmp_path / "model.pth", tmp_path / "mark"
    torch.save({"bomb": _Bomb(mark)}, path)
    fails(f"{VIT[:-1]}, weights={str(path)!r})", "other pickled objects are not read")
    fails(f"file/{path}", "other pickled objects are not read")
    path.rename(path.with_suffix(".safetensors"))
    fails(f"file/{path.with_suffix('.safetensors')}", "files of torch.save are read if they end in .pth or .pt")
    assert not mark.exists()


def test_a_file_takes_settings_that_fit_its_weights_and_names_no_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    zoo.save(vitlab.load(VIT), VIT, str(path))
    fails(f"file/'{path}'(depth=5)", "missing tensors")
    fails(f"file/'{path}'(no_such_setting=3)", "no_such_setting")
    zoo.save(vitlab.load(VIT), f"file/{path}", str(tmp_path / "second.safetensors"))
    fails(f"file/{tmp_path}/second.safetensors", "names another file")


def test_a_wrong_expression_saves_no_file(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match="model source"):
        zoo.save(vitlab.load(VIT), "tim/vit", str(tmp_path / "model.safetensors"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("expression", "origin"),
    [
        (VIT, "random"),
        (f"{VIT} | ContextBroadcast", "random"),
        ("timm/test_vit.r160_in1k(pretrained=False)", "random"),
        ("torchvision/squeezenet1_1", "random"),
        ("vitlab/vit_tiny_cifar", "random"),
    ],
)
def test_weights_that_are_random(expression: str, origin: str) -> None:
    assert identify(vitlab.load(expression)).origin == origin


def test_weights_of_files(tmp_path: Path) -> None:
    path = tmp_path / "a b.safetensors"
    zoo.save(vitlab.load(VIT), VIT, str(path))
    settings = {
        "pretrained": True,
        "pretrained_cfg_overlay": {"file": str(path), "num_classes": 7, "custom_load": False},
    }
    by_timm = f"{VIT[:-1]}, {', '.join(f'{key}={value!r}' for key, value in settings.items())})"
    for expression in (
        f"file/{path}",
        f"file/{path} | ContextBroadcast",
        f"{VIT[:-1]}, weights={str(path)!r})",
        by_timm,
    ):
        assert identify(vitlab.load(expression)).origin == f"file: {path}"


def test_weights_of_hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights from local caches in the layout of the libraries."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    file = Path(torchvision.models.SqueezeNet1_1_Weights.DEFAULT.url).name
    (tmp_path / "torch" / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(torchvision.models.squeezenet1_1().state_dict(), tmp_path / "torch" / "hub" / "checkpoints" / file)
    found = identify(vitlab.load("torchvision/squeezenet1_1(pretrained=True)"))
    assert found.origin == "hub: squeezenet1_1.IMAGENET1K_V1" and not found.untrained
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    cached = tmp_path / "hub" / "models--timm--test_vit.r160_in1k"
    (cached / "snapshots" / "abc").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    save_file(timm.create_model("test_vit").state_dict(), cached / "snapshots" / "abc" / "model.safetensors")
    for expression in ("timm/test_vit(pretrained=True)", "timm/test_vit.r160_in1k"):
        assert identify(vitlab.load(expression)).origin == "hub: test_vit.r160_in1k"
    fresh = identify(vitlab.load("timm/test_vit.r160_in1k(num_classes=3)"))
    assert fresh.origin == "hub: test_vit.r160_in1k (random head)" and fresh.untrained


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("timm/deit_tiny_patch16_225", "in timm; similar names: deit_tiny_patch16_224"),
        ("timm/zzzzzzzz", "no model 'zzzzzzzz' in timm; `vitlab list models` lists all"),
        ("vitlab/rvt_tinny", "no model 'rvt_tinny' in vitlab; similar names: rvt_tiny"),
        ("vitlab/deit_tiny_patch16_224", "no model 'deit_tiny_patch16_224' in vitlab"),
        ("torchvision/vit_b_61", "no model 'vit_b_61' in torchvision; similar names: vit_b_16"),
        ("tim/vit_tiny_patch16_224", "no model source 'tim' (did you mean 'timm'?)"),
        ("vit_tiny_patch16_224", "; expected source/name"),
        ("timm/vit_tiny_patch16_224(depth=2", "cannot read"),
        ("timm/vit_tiny_patch16_224(depth=two)", "is not a literal"),
        ("timm/vit_tiny_patch16_224(depth=__import__('os').getpid())", "is not a literal"),
        ("timm/vit_tiny_patch16_224(3)", "must all be written key=value"),
        ("timm/vit_tiny_patch16_224(depth=2, depth=3)", "'depth' is given twice"),
        ("timm/vit_tiny_patch16_224(hight=2)", "timm/vit_tiny_patch16_224 could not be built"),
        ("torchvision/vit_b_16(hight=2)", "no setting of torchvision/vit_b_16 'hight'; there are: image_size"),
        (f"{VIT} | ContextBroadcats", "no part 'ContextBroadcats' (did you mean 'ContextBroadcast'?)"),
        (f"{VIT} | ContextBroadcast(at='mlp.middle')", "no seam 'mlp.middle' (did you mean 'mlp.mid'?)"),
        (f"{VIT} | 2fold", "invalid part '2fold'"),
        ("file/nowhere.safetensors", "there is no file nowhere.safetensors"),
    ],
)
def test_mistakes_are_one_line_errors(expression: str, message: str) -> None:
    fails(expression, message)


def test_damaged_weights_are_not_loaded(tmp_path: Path) -> None:
    """Flipped bits in the weights of a saved model, and a file of safetensors itself, which has no checksum."""
    path, choose = tmp_path / "model.safetensors", random.Random(0)
    model = vitlab.load(VIT, seed=0)
    zoo.save(model, VIT, str(path))
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for _ in range(10):
        damaged = bytearray(data)
        damaged[choose.randrange(start, len(data))] ^= 1 << choose.randrange(8)
        path.write_bytes(damaged)
        fails(f"file/{path}", f"{path} is damaged (its contents do not match their checksum); restore it from a copy")
    save_file(model.state_dict(), path)
    assert torch.equal(vitlab.load(f"{VIT[:-1]}, weights={str(path)!r})").head.weight, model.head.weight)


# -- real weights ------------------------------------------------------------------------------------------------------


@pytest.mark.realdata
def test_pretrained_deit_tiny_gives_the_logits_of_timm() -> None:
    root = os.environ.get("VITLAB_DATA", "")
    path = Path(root) / "deit_tiny_patch16_224.safetensors"
    if not root or not path.is_file():
        pytest.skip("VITLAB_DATA names no folder with deit_tiny_patch16_224.safetensors in it")
    reference = timm.create_model("deit_tiny_patch16_224")
    reference.load_state_dict(load_file(path))
    ours = vitlab.load(f"timm/deit_tiny_patch16_224(weights={str(path)!r})")
    assert torch.equal(logits(ours, 224), logits(reference, 224))
    assert logits(ours, 224).std() > 0.5  # the logits of a random DeiT are almost equal
