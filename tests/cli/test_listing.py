"""Summaries of stored measurements: numbers, small tables with their axes, and the share of the images."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import vitlab
from vitlab.cli import listing, settings_table
from vitlab.cli.description import show_anatomy
from vitlab.cli.json_output import finite
from vitlab.cli.measured import measured, shortfall
from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.stress_tests import adversarial


def stored(folder: Path, **about: object) -> Path:
    values = {
        "clean_accuracy": np.array(0.75),
        "mce": np.array(np.nan),
        "accuracy": np.array([[0.5, 0.25], [np.nan, 0.0]]),
        "large": np.zeros((2, 2, 26)),
    }
    dims = {"clean_accuracy": (), "mce": (), "accuracy": ("attack", "epsilon"), "large": ("attack", "epsilon", "x")}
    axes = {"attack": ("fgsm", "pgd"), "epsilon": (1.0, 2.0), "x": tuple(range(26))}
    found = Measurement("adversarial", "a", values, dims, axes, {}, about)
    found.save(folder / "adversarial")
    return folder / "adversarial.json"


def test_small_arrays_come_with_their_axes(tmp_path: Path) -> None:
    row = finite(measured(stored(tmp_path, images=64, partial=True, device="cpu")))
    assert json.loads(json.dumps(row, allow_nan=False)) == {
        "path": str(tmp_path / "adversarial.json"),
        "kind": "adversarial",
        "subject": "a",
        "images": 64,
        "partial": True,
        "values": {"clean_accuracy": 0.75, "mce": None},
        "arrays": {
            "accuracy": {
                "axes": {"attack": ["fgsm", "pgd"], "epsilon": [1.0, 2.0]},
                "values": [[0.5, 0.25], [None, 0.0]],
            }
        },
    }
    assert not {"images", "partial"} & set(measured(stored(tmp_path)))


@pytest.mark.parametrize(
    ("about", "remark"),
    [
        ({}, ""),
        ({"images": 64}, ""),
        ({"images": 64, "partial": False, "official_images": 50_000}, ""),
        (
            {"images": 1064, "partial": True, "official_images": 50_000},
            "adversarial of a: on 1,064 images, not the full 50,000",
        ),
        (
            {"images": 50_000, "partial": True, "official_images": 50_000},
            "adversarial of a: on a part of the benchmark only",
        ),
        ({"images": 9, "partial": True}, "adversarial of a: on a part of the benchmark only"),
    ],
)
def test_a_part_is_called_a_part(about: dict[str, object], remark: str, tmp_path: Path) -> None:
    assert shortfall(stored(tmp_path, **about)) == remark


@pytest.mark.parametrize("what", ["parts", "models", "instruments", "stress", "recipes", "data", "losses"])
def test_settings_of_every_kind(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings_table.show(what, as_json=True)
    listed = json.loads(capsys.readouterr().out)
    names = {"models": ["vitlab/…", *(f"vitlab/{name}" for name in plugins.assemblies())]}.get(
        what, listing.KINDS[what]()
    )
    assert set(listed) == set(names)
    assert all(set(row) == set(settings_table.COLUMNS) for rows in listed.values() for row in rows)


def test_settings_of_one_name_are_those_of_its_signature(capsys: pytest.CaptureFixture[str]) -> None:
    settings_table.show("adversarial")
    header, *lines = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert header == ["name", "setting", "type", "default", "range", "help"]
    declared = inspect.signature(adversarial.measure).parameters
    assert [line[1] for line in lines] == list(declared)[2:]
    by_name = {line[1]: line for line in lines}
    assert by_name["steps"] == ["adversarial", "steps", "int", "10", "1 to 1,000", "number of steps of PGD."]
    assert by_name["norm"][2:5] == ["str", "'linf'", "'linf' or 'l2'"]
    with pytest.raises(VitlabError, match="did you mean 'occlusion'"):
        settings_table.show("oclusion")


@pytest.mark.parametrize(
    ("name", "given", "rows"),
    [
        ("timm/vit_tiny_patch16_224", {"embed_dim": 192, "num_heads": 3, "qkv_bias": True}, {"qkv_bias": "bool"}),
        ("vitlab/rvt_tiny", {"depths": (10, 2), "embed_dims": (192, 384)}, {"depths": "list[int]"}),
        ("torchvision/resnet18", {"num_classes": 1000, "groups": 1}, {"zero_init_residual": "bool"}),
        ("vitlab/vilt", {"hidden_size": 768, "vocab_size": 30522}, {"image_size": "int | (int, int)"}),
        ("vitlab/upernet", {"classes": 150}, {"width": "int"}),
        ("distillation", {"kind": "hard", "temperature": 3.0}, {"temperature": "float"}),
    ],
)
def test_settings_of_one_model_or_loss(
    name: str, given: dict[str, object], rows: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The defaults are the published sizes of the models, the types those of the constructors."""
    settings_table.show(name, as_json=True)
    (listed,) = json.loads(capsys.readouterr().out).values()
    found = {row["setting"]: row for row in listed}
    assert {key: found[key]["default"] for key in given} == {key: repr(value) for key, value in given.items()}
    assert {key: found[key]["type"] for key in rows} == rows
    assert not {"self", "student", "backbone_settings"} & set(found)


def test_settings_of_a_saved_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of Hugging Face from its folder, and of a file of vitlab, whose model is that of its expression."""
    transformers = pytest.importorskip("transformers")
    transformers.ViTConfig(hidden_size=24).save_pretrained(tmp_path / "vit")
    settings_table.show(f"hf/{tmp_path}/vit", as_json=True)
    (listed,) = json.loads(capsys.readouterr().out).values()
    assert {"setting": "hidden_size", "default": "24", "type": "int"}.items() <= listed[0].items()
    vitlab.save(vitlab.load("timm/test_vit"), "timm/test_vit", str(tmp_path / "x.safetensors"))
    ((_, stored),) = settings_table.find(f"file/{tmp_path}/x.safetensors").items()
    ((_, plain),) = settings_table.find("timm/test_vit").items()
    assert [each.name for each in stored] == [each.name for each in plain]
    with pytest.raises(VitlabError, match="no model 'rvt_tinny' in vitlab; similar names: rvt_tiny"):
        settings_table.find("vitlab/rvt_tinny")


def test_describe_gives_the_reason_for_missing_maps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = transformers.YolosConfig(**sizes, image_size=[64, 64], patch_size=8, num_detection_tokens=5)
    transformers.YolosForObjectDetection(config).save_pretrained(tmp_path / "yolos")
    show_anatomy(f"hf/{tmp_path}/yolos", None)
    shown = " ".join(capsys.readouterr().out.split())
    assert "no attention map in 2 of 2 blocks: tokens after the grid are not supported in maps" in shown


def test_describe_as_json_has_null_for_a_change_that_is_not_finite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights that diverged in training: the outputs, and so their change by the part, are NaN."""
    model = vitlab.load("timm/test_vit")
    torch.nn.init.constant_(model.head.bias, float("nan"))
    vitlab.save(model, "timm/test_vit", str(tmp_path / "diverged.safetensors"))
    show_anatomy(f"file/{tmp_path}/diverged.safetensors | ContextBroadcast", None, as_json=True)
    shown = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert shown["output_change"] is None and shown["family"] == "vit"
