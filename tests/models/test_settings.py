"""Settings of models are checked before they are built, and models that do not fit into memory are refused."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import timm
import torch

import vitlab
from vitlab import zoo
from vitlab.core import machine_memory
from vitlab.core.annotations import fits
from vitlab.core.errors import VitlabError
from vitlab.core.machine_memory import available_memory
from vitlab.core.signatures import settings_of
from vitlab.models._settings import architecture, check_size
from vitlab.zoo import libraries

TINY = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "num_heads": 3}


@pytest.mark.parametrize(
    "expression",
    [
        "timm/vit_tiny_patch16_224(depth=1000000)",
        "timm/vit_tiny_patch16_224(embed_dim=1000000, num_heads=1)",
        "timm/swin_tiny_patch4_window7_224(depths=(2, 2, 1000000, 2))",
        "vitlab/vit_tiny_cifar(depth=1000000)",
        "vitlab/rvt_tiny(depths=(1, 1000000))",
        "torchvision/vit_b_16(representation_size=1000000000)",
    ],
)
def test_models_that_exceed_memory_raise_with_the_estimate(expression: str) -> None:
    with pytest.raises(
        VitlabError,
        match=r"needs about [\d,.]+ TB of memory; [\d,.]+ .B are available; use smaller settings, such as \w+",
    ) as caught:
        vitlab.load(expression)
    assert "\n" not in str(caught.value)


def test_the_estimate_of_a_deep_model_is_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extrapolated from one and two blocks, against a model that is built."""

    def build(**settings: object) -> torch.nn.Module:
        return timm.create_model("vit_tiny_patch16_224", **{**TINY, **settings})

    built = build(depth=150)
    size = sum(each.numel() * each.element_size() for each in (*built.parameters(), *built.buffers()))
    monkeypatch.setattr("vitlab.core.machine_memory.available_memory", lambda: float(size))
    check_size("it", {"depth": 150}, build)
    monkeypatch.setattr("vitlab.core.machine_memory.available_memory", lambda: float(size - 1))
    with pytest.raises(VitlabError, match=re.escape(f"it needs about {size / 1e6:.2g} MB of memory")):
        check_size("it", {"depth": 150}, build)


def test_random_numbers_do_not_depend_on_the_estimate() -> None:
    settings = "img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3"
    plain = zoo.load(f"timm/vit_tiny_patch16_224({settings})", seed=0)
    sized = zoo.load(f"timm/vit_tiny_patch16_224({settings}, num_classes=5000)", seed=0)  # large: an estimate is made
    assert torch.equal(plain.patch_embed.proj.weight, sized.patch_embed.proj.weight)


@pytest.mark.parametrize(
    "expression",
    [
        "timm/cait_xxs24_224(depth_token_only=1000000)",
        "timm/xcit_nano_12_p16_224(cls_attn_layers=1000000)",
        "timm/vit_tiny_patch16_224(embed_dim=24, depth=1001)",
        "timm/swin_tiny_patch4_window7_224(embed_dim=12, depths=(300, 300, 300, 300))",
    ],
)
def test_models_of_too_many_blocks_are_refused(expression: str) -> None:
    with pytest.raises(VitlabError, match="[TG]B of memory|blocks, which take about .* to build; use 1,000 or fewer"):
        vitlab.load(expression)


@pytest.mark.parametrize("setting", ["img_size=8192", "num_classes=10000000"])
def test_invalid_sizes_raise_with_the_range(setting: str) -> None:
    with pytest.raises(VitlabError, match=r"expected an integer from \d to (4,096|1,000,000)"):
        vitlab.load(f"timm/vit_tiny_patch16_224({setting})")


def test_available_memory_is_what_the_system_and_the_container_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_memory, "_MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(machine_memory, "_CONTAINER", tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal:  900 kB\nMemAvailable:     50 kB\n")
    assert available_memory() == 50 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() == 50 * 1024
    (tmp_path / "memory.max").write_text("40000\n")
    (tmp_path / "memory.current").write_text("30000\n")
    (tmp_path / "memory.stat").write_text("anon 20000\nfile 10000\n")
    assert available_memory() == 40000 - (30000 - 10000)


def test_the_memory_of_the_machine_is_known() -> None:
    assert 2**28 < available_memory() < 2**50


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("vitlab/rvt_tiny(depths='x')", r"rvt_tiny\(depths='x'\): expected a list of 1 to 100 values, each an integer"),
        ("vitlab/alternet50(base='preacts')", "expected one of 'preact', 'resnet', 'resnext' .did you mean 'preact'"),
        ("vitlab/rvt_tiny(num_heads=5)", r"rvt_tiny\(num_heads=5\): expected a list, each an integer$"),
        ("vitlab/fan_tiny_vit(num_heads=(1, 2))", r"fan_tiny_vit\(num_heads=\(1, 2\)\): expected an integer$"),
        ("vitlab/pit_tiny_cifar(drop_path_rate=1.5)", "expected a number from 0 to below 1"),
        ("timm/vit_tiny_patch16_224(num_classes='x')", "expected an integer from 0 to 1,000,000"),
        ("vitlab/upernet(backbone='timm/vit_tiny_patch16_224', width=0)", "expected an integer from 1"),
        ("timm/vit_tiny_patch16_224 | TokenAwarePooling(branches=65)", "expected an integer from 1 to 64"),
    ],
)
def test_settings_are_refused_before_the_model_is_built(
    expression: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (zoo, libraries):
        monkeypatch.setattr(module, "build_or_raise", lambda *given: pytest.fail("the model was built"))
    with pytest.raises(VitlabError, match=expected):
        vitlab.load(expression)


@pytest.mark.parametrize("name", zoo.model_names("vitlab"))
def test_defaults_of_our_classes_fit(name: str) -> None:
    """The schema has the types of the constructors that it stands for."""
    with torch.device("meta"):
        kind = type(timm.create_model(name))
    declared = {setting.name: setting.annotation for setting in settings_of(architecture)}
    for key, parameter in inspect.signature(kind.__init__).parameters.items():
        if key in declared and parameter.default is not parameter.empty:
            assert fits(parameter.default, declared[key]), key


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("depths=(1, 1000000)", "needs about "),
        ("global_pool=7", r"\(global_pool=7\): "),
        ("no_such=7", " could not be built: "),
    ],
)
def test_errors_name_the_source_of_the_expression(setting: str, reason: str) -> None:
    with pytest.raises(VitlabError, match=f"^vitlab/rvt_tiny ?{reason}"):
        vitlab.load(f"vitlab/rvt_tiny({setting})")
