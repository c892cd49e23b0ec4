"""Fine-tuning: expressions of the recipe, new heads, other image sizes, and runs from end to end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.layers import resample_abs_pos_embed

import vitlab
from vitlab import zoo
from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_model
from vitlab.core.recipe import change
from vitlab.core.store import Run
from vitlab.identity import identify
from vitlab.recipes.finetune import finetune, quick_finetune
from vitlab.tasks.classification import run

TINY = "timm/vit_tiny_patch16_224(img_size=16, patch_size=4, embed_dim=24, depth=2, num_heads=3, num_classes=25)"
SMALL = ["epochs=2", "batch_size=8", "precision=float32"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on scenes of 16×16 pixels, 25 classes."""
    folder = tmp_path_factory.mktemp("runs") / "first run"
    recipe = change(plugins.recipe("quick(images=48, epochs=1)"), {"model": TINY, "image_size": (16, 16)})
    run(recipe, folder, device="cpu")
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three classes of four images each."""
    numbers = np.random.default_rng(0)
    for name in ("ant", "bee", "cat"):
        (tmp_path / "my photos" / name).mkdir(parents=True)
        for i in range(4):
            pixels = numbers.integers(0, 255, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "my photos" / name / f"{i}.png")
    return tmp_path / "my photos"


@pytest.mark.parametrize(
    ("text", "model", "size"),
    [
        ("finetune", "timm/deit_tiny_patch16_224(pretrained=True)", 224),
        ("finetune(model='timm/vit_base_patch16_384(pretrained=True)')", "(pretrained=True)", 384),
        ("finetune(model='timm/vit_base_patch16_384.augreg_in1k')", "timm/vit_base_patch16_384.augreg_in1k", 384),
        ("finetune(size=224)", "timm/deit_tiny_patch16_224(pretrained=True)", 224),
        ("finetune(size=384)", "(pretrained=True, img_size=384)", 384),
        ("finetune(drop_path=0.2)", "(pretrained=True, drop_path_rate=0.2)", 224),
        ("finetune(part='tap')", "| TokenAwarePooling(identity_init=True, blocks='all')", 224),
        ("finetune(part='cb', identity=False)", "| ContextBroadcast(blocks='upper')", 224),
        ("finetune(part='cb', blocks='all')", "| ContextBroadcast(identity_init=True, blocks='all')", 224),
        ("finetune(part='AveragePooling(kernel=5)')", "| AveragePooling(identity_init=True, kernel=5)", 224),
        (
            "finetune(part='TokenAwarePooling(identity_init=False)', blocks='2:')",
            "| TokenAwarePooling(identity_init=False, blocks='2:')",
            224,
        ),
        ("finetune(model=\"hf/a/b(pretrained=True) | ContextBroadcast(at='mlp.out')\")", "ContextBroadcast(at=", 224),
        ("finetune(model=\"timm/x(weights='my model.pth', img_size=64)\")", "weights='my model.pth'", 64),
    ],
)
def test_expressions(text: str, model: str, size: int) -> None:
    recipe = plugins.recipe(text)
    assert model in recipe.model and recipe.image_size == (size, size)
    parse_model(recipe.model)
    assert recipe.optimizer.layer_decay == 0.75 and recipe.optimizer.warmup_epochs < recipe.epochs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("finetune(model='timm/deit_tiny_patch16_224')", "has random weights; to fine-tune, add pretrained=True"),
        ("finetune(model='timm/a.b(pretrained=False)')", "has random weights"),
        ("finetune(model='file/no such run')", "there is no file no such run"),
        (
            "finetune(model='hf/a/b(pretrained=True)', size=96)",
            "size was given for 'hf/a/b.pretrained=True.'; expected a model of timm",
        ),
        ("finetune(model='torchvision/vit_b_16(pretrained=True)', drop_path=0.1)", "drop_path was given for 'torchvis"),
        (
            "finetune(model='torchvision/vit_b_16(pretrained=True)', size=96, drop_path=0.1)",
            "size and drop_path was given",
        ),
        ("finetune(part='tapp')", "did you mean 'tap'"),
        ("finetune(part='AveragePooling(blocks=[1])', blocks='all')", "'blocks' is given twice"),
        ("finetune(blocks='all')", "need a part"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(VitlabError, match=message):
        plugins.recipe(text)


def test_the_optimiser_follows_the_batch() -> None:
    recipe = finetune(batch_size=128, epochs=5, diversification=1.0)
    assert recipe.optimizer.lr == pytest.approx(5e-4 / 4) and recipe.optimizer.warmup_epochs == 1
    assert recipe.objective.diversification == 1
    assert recipe.optimizer == finetune(batch_size=128, epochs=5).optimizer, "ADL changes the objective only"
    assert finetune(strong=False).augment.mixup == 0 < finetune().augment.mixup


@pytest.mark.slow
def test_a_run_with_a_new_head_a_part_and_another_size(trained: Path, photos: Path, tmp_path: Path) -> None:
    """From the command line, with quotes and spaces in both paths; the result loads, and measures, as its own run."""
    data = f"folder('{photos}', holdout=0.25)"
    recipe = f"finetune(model='file/{trained}', data=\"{data}\", part='tap', size=24, epochs=2, batch_size=4)"
    command = [
        sys.executable,
        "-m",
        "vitlab",
        "train",
        recipe,
        "--out",
        "tuned",
        "--set",
        "precision=float32",
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["epoch"] == 2
    assert "another number of classes" in found.stderr and "changed the outputs" not in found.stderr
    model = vitlab.load(f"file/{tmp_path}/tuned").eval()
    assert model(torch.zeros(1, 3, 24, 24)).shape == (1, 3)
    assert [part.settings for part in vitlab.parts(model)] == [{"identity_init": True}] * 2
    assert identify(model).origin.startswith("file: ")
    assert len(Run(tmp_path / "tuned").epochs()) == 2


def test_fine_tuning_starts_from_the_trained_weights(trained: Path) -> None:
    """All but the head is loaded; position embeddings are timm's interpolation; the part changes nothing."""
    plain = vitlab.load(f"file/{trained}")
    with pytest.warns(UserWarning, match="head.weight, head.bias keep their random initial values"):
        model = vitlab.load(f"file/'{trained}'(img_size=32, num_classes=3) | ContextBroadcast(identity_init=True)")
    assert identify(model).origin == f"file: {trained} (random head)"
    expected = resample_abs_pos_embed(plain.pos_embed, [8, 8], num_prefix_tokens=1)
    torch.testing.assert_close(model.pos_embed, expected)
    for name, tensor in plain.state_dict().items():
        if name != "pos_embed" and not name.startswith("head."):
            assert torch.equal(tensor, model.state_dict()[name]), name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = vitlab.load(f"file/'{trained}'(drop_path_rate=0.5)").eval()
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(same(images), plain.eval()(images))
    assert same.blocks[1].drop_path1.drop_prob == 0.5


def test_weights_of_another_file_are_interpolated_too(tmp_path: Path) -> None:
    settings = {"patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3}
    source = timm.create_model("deit_tiny_patch16_224", img_size=16, num_classes=5, **settings)
    path = tmp_path / "weights.pth"
    torch.save(source.state_dict(), path)
    text = ", ".join(f"{key}={value}" for key, value in settings.items())
    with pytest.warns(UserWarning, match="head.weight, head.bias keep"):
        model = vitlab.load(
            f"timm/deit_tiny_patch16_224({text}, img_size=(24, 32), num_classes=2, weights={str(path)!r})"
        )
    expected = resample_abs_pos_embed(source.pos_embed, [6, 8], num_prefix_tokens=1)
    torch.testing.assert_close(model.pos_embed, expected)


def test_a_head_of_the_same_size_is_kept(trained: Path, tmp_path: Path) -> None:
    recipe = change(plugins.recipe(f"finetune(model='file/{trained}', data='scenes(train=16, test=8)')"), SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(recipe, tmp_path / "run", device="cpu")
    assert "num_classes=25" in zoo.builder_of(f"file/{tmp_path}/run")


def test_hugging_face_weights_get_a_new_head(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=8, num_labels=5)
    source = transformers.ViTForImageClassification(config)
    source.save_pretrained(tmp_path / "vit")
    model = vitlab.load(f"hf/{tmp_path}/vit(pretrained=True, num_labels=3)")
    assert model.classifier.weight.shape[0] == 3 and identify(model).origin.endswith("(random head)")
    assert torch.equal(model.vit.embeddings.cls_token, source.vit.embeddings.cls_token)
    with pytest.raises(VitlabError, match="do not fit its settings"):
        vitlab.load(f"hf/{tmp_path}/vit(pretrained=True, num_labels=3, image_size=32)")


def test_torchvision_weights_get_a_new_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the cache of torch, where a download would be stored."""
    import torchvision

    source = torchvision.models.squeezenet1_1()
    weights = torchvision.models.SqueezeNet1_1_Weights.DEFAULT
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    torch.save(source.state_dict(), cache / weights.url.rpartition("/")[2])
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    with pytest.warns(UserWarning, match="keep their random initial values"):
        model = vitlab.load("torchvision/squeezenet1_1(pretrained=True, num_classes=4)")
    assert model.classifier[1].out_channels == 4 and identify(model).origin.endswith("(random head)")
    assert torch.equal(model.features[0].weight, source.features[0].weight)


def test_position_embeddings_of_a_rectangle_are_refused(tmp_path: Path) -> None:
    source = timm.create_model("vit_tiny_patch16_224", img_size=(16, 32), patch_size=8, embed_dim=24, depth=1)
    path = tmp_path / "weights.pth"
    torch.save(source.state_dict(), path)
    settings = "patch_size=8, embed_dim=24, depth=1, img_size=32"
    with pytest.raises(VitlabError, match="pos_embed has 9 positions, which cannot be interpolated to 4x4"):
        vitlab.load(f"timm/vit_tiny_patch16_224({settings}, weights={str(path)!r})")


def test_quick_finetuning_runs_with_diversification(trained: Path, tmp_path: Path) -> None:
    recipe = plugins.recipe(f"quick_finetune(model='file/{trained}', part='cb_s', diversification=1.0, epochs=1)")
    small = {"data": "scenes(train=128, test=64, objects=1, classes=10)", "steps_per_epoch": 2}
    row = run(change(recipe, {**small, "objective.tau": 0.0}), tmp_path / "run", device="cpu")
    assert row["step"] == 2 and row["train_loss"] > 2.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_quick_finetuning_reaches_the_documented_accuracy(tmp_path: Path) -> None:
    """Two runs of less than a minute; from random weights the same steps learn nothing."""
    run(plugins.recipe("quick"), tmp_path / "quick", device="cpu")
    stated = re.search(r"top-1 of ([\d.]+) with seed 0", quick_finetune.__doc__ or "")
    assert stated is not None
    for part in ("", "tap"):
        recipe = quick_finetune(f"file/{tmp_path}/quick", part)
        reached = run(recipe, tmp_path / f"tuned {part}", device="cpu")["top1"]
        assert reached == pytest.approx(float(stated[1]), abs=6)
