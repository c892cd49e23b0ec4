"""Settings of Hugging Face's and torchvision's models are checked before they are built."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision

import vitlab
from vitlab.core.annotations import fits
from vitlab.core.errors import VitlabError
from vitlab.models._library_settings import configuration_settings, torchvision_settings

SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ViT of two layers, as `save_pretrained` writes it."""
    transformers = pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("saved") / "vit"
    config = transformers.ViTConfig(**SMALL, image_size=32, patch_size=8, num_labels=7)
    transformers.ViTForImageClassification(config).save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("num_labels=0", "expected an integer from 1 to 100,000"),
        ("num_labels=True", "expected an integer from 1"),
        ("attention_probs_dropout_prob=7.0", "expected a number from 0 to 1"),
        ("num_channels=0", "expected an integer from 1"),
        ("image_size=0", "expected an integer from 1 to 4,096, or (an integer"),
        ("image_size=1000000", "expected an integer from 1 to 4,096, or (an integer"),
        ("layer_norm_eps=-1.0", "expected a number above 0 and up to 1"),
        ("num_hidden_layers=0", "expected an integer from 1"),
        ("hidden_size='x'", "expected an integer from 1"),
        ("hidden_act='gelo'", "(did you mean 'gelu'?)"),
        ("qkv_bias=3", "expected True or False"),
        ("initializer_range=1e400", "expected a number"),
        ("pretrained='x'", "expected True or False"),
        ("pretrained=True, num_labels='x'", "expected an integer from 1"),
    ],
)
def test_invalid_values_of_hugging_face_raise(folder: Path, setting: str, expected: str) -> None:
    given = setting.rpartition(", ")[2].replace("1e400", "inf")
    with pytest.raises(VitlabError, match=f"^{re.escape(f'hf/{folder}({given}): ')}.*{re.escape(expected)}") as caught:
        vitlab.load(f"hf/{folder}({setting})")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "near"), [("hidden_sise", "hidden_size"), ("num_label", "num_labels")])
def test_an_unknown_name_raises_with_the_closest(folder: Path, name: str, near: str) -> None:
    with pytest.raises(VitlabError, match=rf"no setting of hf/.* '{name}' \(did you mean '{near}'\?\); there are: "):
        vitlab.load(f"hf/{folder}({name}=3)")


@pytest.mark.parametrize("setting", ["nonsense=3", "trust_remote_code=True", "revision='x'", "return_dict=False"])
def test_names_outside_of_the_configuration_are_not_settings(folder: Path, setting: str) -> None:
    with pytest.raises(VitlabError, match=rf"no setting of hf/\S+ '{setting.partition('=')[0]}'; there are: hidden_"):
        vitlab.load(f"hf/{folder}({setting})")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("num_hidden_layers=20000", "20,000 blocks, which take about 2 minutes to build; use 1,000 or fewer"),
        ("num_hidden_layers=1000000", "1,000,000 blocks, which take about 100 minutes|B of memory"),
        ("hidden_size=9000000", r"needs about [\d,.]+ TB of memory; .* are available; .*, such as hidden_size$"),
        (
            "pretrained=True, num_labels=100000, hidden_size=300000",
            r"needs about 3\.\d TB of memory",
        ),  # 2 blocks of 4 h² weights,
    ],
)
def test_models_of_hugging_face_that_exceed_memory_raise(folder: Path, setting: str, reason: str) -> None:
    began = time.process_time()
    with pytest.raises(VitlabError, match=reason) as caught:
        vitlab.load(f"hf/{folder}({setting})")
    assert "\n" not in str(caught.value)
    assert time.process_time() - began < 12  # without the check 37 s, and longer


def test_values_of_hugging_face_that_fit_reach_the_model(folder: Path) -> None:
    """Sizes by the shapes of tensors, the rate of dropout by the modules."""
    settings = "hidden_size=12, num_hidden_layers=3, image_size=(16, 32), num_labels=5, hidden_dropout_prob=0.25"
    model: Any = vitlab.load(f"hf/{folder}({settings}, layer_norm_eps=0.5, attn_implementation='eager')")
    assert model.classifier.weight.shape == (5, 12) and model.vit.embeddings.position_embeddings.shape == (1, 9, 12)
    assert sum(".layernorm_before.weight" in name for name, _ in model.named_parameters()) == 3
    assert {each.p for each in model.modules() if isinstance(each, torch.nn.Dropout)} >= {0.25}
    assert {each.eps for each in model.modules() if isinstance(each, torch.nn.LayerNorm)} == {0.5}
    assert model.config._attn_implementation == "eager"


def test_nested_configurations_are_checked(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.CLIPConfig().save_pretrained(tmp_path)
    with pytest.raises(VitlabError, match=r"\(vision_config\)\(hidden_size='x'\): expected an integer from 1"):
        vitlab.load(f"hf/{tmp_path}(vision_config={{'hidden_size': 'x'}})")
    with pytest.raises(VitlabError, match=r"no setting of .*\(vision_config\) 'layers'"):
        vitlab.load(f"hf/{tmp_path}(vision_config={{'layers': 3}})")
    with pytest.raises(VitlabError, match=r"vision_config=3\): expected a dict"):
        vitlab.load(f"hf/{tmp_path}(vision_config=3)")


def test_the_defaults_of_image_models_fit() -> None:
    """Every configuration of Hugging Face that has an image size: its own values are accepted."""
    transformers = pytest.importorskip("transformers")
    checked = 0
    for name in sorted(dir(transformers)):
        kind = getattr(transformers, name) if name.endswith("Config") and name[0] in "BCDSV" else None
        if not isinstance(kind, type) or not issubclass(kind, transformers.PretrainedConfig):
            continue
        try:
            config: Any = kind()
        except Exception:  # configurations that need arguments
            continue
        if not hasattr(config, "image_size"):
            continue
        for setting in configuration_settings(config):
            if setting.default is not None or setting.name not in ("num_labels", "dtype"):
                assert fits(setting.default, setting.annotation), (name, setting.name, setting.default)
                checked += 1
    assert checked > 300


def test_the_settings_of_vilt_are_checked() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(VitlabError, match=r"^vitlab/vilt\(hidden_size='x'\): expected an integer from 1"):
        vitlab.load("vitlab/vilt(hidden_size='x')")
    with pytest.raises(VitlabError, match="vitlab/vilt needs about .* TB of memory"):
        vitlab.load("vitlab/vilt(vocab_size=1000000000)")


def test_all_lines_of_a_library_error_are_joined(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **named: object) -> None:
        raise ValueError("Validation error for field 'x':\n    TypeError: expected int\n")

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", fail)
    with pytest.raises(VitlabError, match="built: Validation error for field 'x': TypeError: expected int$"):
        vitlab.load(f"hf/{folder}")


def test_a_failed_allocation_has_a_plain_message(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **named: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", fail)
    with pytest.raises(
        VitlabError, match=r"hf/\S+ does not fit into the memory of this machine; use smaller settings$"
    ):
        vitlab.load(f"hf/{folder}")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("resnet18(zero_init_residual='x')", r"resnet18\(zero_init_residual='x'\): expected True or False$"),
        ("vit_b_16(num_layers='x')", r"vit_b_16\(num_layers='x'\): the name of the model gives num_layers; omit it"),
        ("resnet18(layers=[1, 1, 1, 1])", "the name of the model gives layers; omit it"),
        ("resnet18(num_classes=0)", "expected an integer from 1"),
        ("vit_b_16(dropout=2)", "expected a number from 0 to 1"),
        ("vit_b_16(image_size=1000000)", "expected an integer from 1 to 4,096"),
        ("resnet18(zero_init_residul=True)", "no setting of torchvision/resnet18 .*did you mean 'zero_init_residual'"),
        ("resnet18(pretrained='x')", "expected True or False"),
    ],
)
def test_invalid_values_of_torchvision_raise(expression: str, expected: str) -> None:
    with pytest.raises(VitlabError, match=expected) as caught:
        vitlab.load(f"torchvision/{expression}")
    assert "\n" not in str(caught.value)


def test_the_settings_of_torchvision_are_those_that_a_name_takes() -> None:
    """Each setting is given its default, or the default of the name: torchvision takes it."""
    assert [each.name for each in torchvision_settings("vit_b_16")] == [
        *("image_size", "dropout", "attention_dropout", "num_classes", "representation_size")
    ]
    for name, given in {
        "vit_b_16": {"image_size": 224},
        "swin_t": {},
        "densenet121": {},
        "efficientnet_b0": {"dropout": 0.5},
    }.items():
        for setting in torchvision_settings(name):
            value = given.get(setting.name, setting.default)
            assert setting.required or fits(value, setting.annotation)
            with torch.device("meta"):
                torchvision.models.get_model(name, weights=None, **{setting.name: value})
