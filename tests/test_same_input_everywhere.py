"""One model on the same photographs in every entry point: the input of timm's transform, and its predictions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor
from typer.testing import CliRunner

import vitlab
from vitlab import inputs, zoo
from vitlab.cli import app
from vitlab.core.recipe import Recipe
from vitlab.data.catalogue import open_data
from vitlab.preprocessing import declared
from vitlab.tasks.classification import Accuracy, batches
from vitlab.tasks.preprocessing import preprocessing_for
from vitlab.training.distributed import World

pytestmark = pytest.mark.realdata

COUNT = 120


def expression() -> str:
    return f"timm/deit_tiny_patch16_224(weights='{os.environ['VITLAB_DATA']}/deit_tiny_patch16_224.safetensors')"


@pytest.fixture(scope="module")
def reference() -> tuple[Tensor, Tensor, Tensor]:
    """Input, logits and labels by timm alone."""
    model = timm.create_model("deit_tiny_patch16_224", checkpoint_path="", pretrained=False).eval()
    model.load_state_dict(vitlab.load(expression()).state_dict())
    transform = timm.data.create_transform(**timm.data.resolve_data_config(model.pretrained_cfg))
    test = open_data("imagenet").test
    chosen = [place * len(test) // COUNT for place in range(COUNT)]
    images = torch.stack([transform(test[i][0]) for i in chosen])
    with torch.no_grad():
        return images, model(images), test.labels[chosen]


def test_batches_are_the_tensors_of_timm(reference) -> None:
    found = inputs.batches_for(vitlab.load(expression()), "imagenet", COUNT, batch_size=32)
    images, labels = (torch.cat(each) for each in zip(*found, strict=True))
    assert torch.equal(images, reference[0]) and torch.equal(labels, reference[2])


@pytest.mark.slow
def test_measure_and_stress_count_the_same_images_right(reference, tmp_path: Path) -> None:
    _, logits, labels = reference
    right = (logits.argmax(1) == labels).double()
    run = ["--data", "imagenet", "--images", str(COUNT), "--json", "--quiet"]
    for verb, name, value in (
        ("measure", "calibration", "accuracy"),
        ("stress", "occlusion(ratios=0.5)", "clean_accuracy"),
    ):
        result = CliRunner().invoke(app, [verb, expression(), "--with", name, *run, "--out", str(tmp_path)])
        assert result.exit_code == 0, result.output
        (found,) = json.loads(result.stdout)
        assert found["values"][value] == pytest.approx(float(right.mean())), verb
    from_python = vitlab.stress(
        "occlusion", vitlab.load(expression()), inputs.batches_for(vitlab.load(expression()), "imagenet", COUNT)
    )
    assert float(from_python.values["clean_accuracy"]) == pytest.approx(float(right.mean()))


def test_training_evaluates_on_the_same_tensors(reference) -> None:
    _, logits, labels = reference
    recipe = Recipe(expression(), "imagenet", batch_size=32)
    model = zoo.load(recipe.model).eval()
    whole = open_data("imagenet")
    test = whole.test.subset([place * len(whole.test) // COUNT for place in range(COUNT)])
    data = vitlab.data.images.DataSet("imagenet", test, test, whole.classes, whole.mean, whole.std)
    how = preprocessing_for(recipe, model, data)
    found = Accuracy(data, batches(recipe, data, World()), World(), recipe, None, how)(model)
    assert found["top1"] == pytest.approx(100 * float((logits.argmax(1) == labels).double().mean()))
    assert found["loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-5)


def hugging_face_rebuild(folder: Path) -> str:
    """The same network for pixels normalised by 0.5 and 0.5: the patch embedding absorbs the difference."""
    transformers = pytest.importorskip("transformers")
    ours = vitlab.load(expression()).state_dict()
    config = transformers.ViTConfig(
        hidden_size=192, num_attention_heads=3, intermediate_size=768, layer_norm_eps=1e-6, num_labels=1000
    )
    model = transformers.ViTForImageClassification(config)
    mean, std = (torch.tensor(each).view(1, 3, 1, 1) for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    weight = ours["patch_embed.proj.weight"]
    state = {
        "vit.embeddings.cls_token": ours["cls_token"],
        "vit.embeddings.position_embeddings": ours["pos_embed"],
        "vit.embeddings.patch_embeddings.projection.weight": weight * 0.5 / std,
        "vit.embeddings.patch_embeddings.projection.bias": ours["patch_embed.proj.bias"]
        + (weight * (0.5 - mean) / std).sum((1, 2, 3)),
        "vit.layernorm.weight": ours["norm.weight"],
        "vit.layernorm.bias": ours["norm.bias"],
        "classifier.weight": ours["head.weight"],
        "classifier.bias": ours["head.bias"],
    }
    names = {"norm1": "layernorm_before", "norm2": "layernorm_after", "attn.proj": "attention.o_proj"}
    for i in range(12):
        for kind in ("weight", "bias"):
            pieces = ours[f"blocks.{i}.attn.qkv.{kind}"].chunk(3)
            for name, piece in zip("qkv", pieces, strict=True):
                state[f"vit.layers.{i}.attention.{name}_proj.{kind}"] = piece
            for here, there in {**names, "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}.items():
                state[f"vit.layers.{i}.{there}.{kind}"] = ours[f"blocks.{i}.{here}.{kind}"]
    model.load_state_dict(state)
    model.save_pretrained(folder)
    about = {
        "size": {"shortest_edge": 248},
        "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224},
        "resample": 3,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(about))
    return f"hf/{folder}(pretrained=True)"


@pytest.mark.slow
def test_a_hugging_face_model_with_another_normalisation_gives_the_same_logits(reference, tmp_path: Path) -> None:
    model = vitlab.load(hugging_face_rebuild(tmp_path)).eval()
    assert declared(model)["mean"] == (0.5,) * 3
    found = inputs.batches_for(model, "imagenet", COUNT, batch_size=40, classes=list(open_data("imagenet").classes))
    with torch.no_grad():
        logits = torch.cat([model(images).logits for images, _ in found])
    assert torch.cat([labels for _, labels in found]).equal(reference[2])
    assert float((logits - reference[1]).abs().max()) <= 1e-4
    assert torch.equal(logits.argmax(1), reference[1].argmax(1))
    twin = timm.create_model("deit_tiny_patch16_224").eval()
    twin.load_state_dict(vitlab.load(expression()).state_dict())
    model, twin = model.double(), twin.double()
    with torch.no_grad():
        (mine, _), theirs = next(iter(found)), reference[0][:40]
        assert float((model(mine.double()).logits - twin(theirs.double())).abs().max()) <= 1e-5
