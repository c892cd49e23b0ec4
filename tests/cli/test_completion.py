"""Shell completion, requested as a shell does."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitlab.cli import completion, settings_table
from vitlab.core import plugins
from vitlab.models.rvt import RobustVisionTransformer

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys, json
sys.argv = ['vitlab', *{arguments!r}]
from vitlab.cli import main
try:
    main()
finally:
    print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})), file=sys.stderr)
"""


def shell(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **settings}
    command = [sys.executable, "-c", PROGRAM.format(arguments=arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("vitlab measure timm/x --with attention_ent", {"attention_entropy"}),
        ("vitlab measure timm/x --with lesion,calib", {"lesion,calibration"}),
        ("vitlab stress timm/x --with occ", {"occlusion"}),
        ("vitlab stress timm/x --with occlusion(ra", {"occlusion(ratios="}),
        ("vitlab train quick(posi", {"quick(position="}),
        ("vitlab train deit_d", {"deit_distilled"}),
        ("vitlab list inst", {"instruments"}),
        ("vitlab describe tor", {"torchvision/"}),
        ("vitlab measu", {"measure"}),
        ("vitlab measure timm/x --data cam", {"camvid"}),
        ("vitlab measure timm/x --data scenes(tr", {"scenes(train="}),
        ("vitlab measure timm/x --data cifar10(fr", {"cifar10(fraction="}),
    ],
)
def test_completion_does_not_import_torch(line: str, offered: set[str]) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    found = shell(_VITLAB_COMPLETE="complete_bash", **words)
    assert set(found.stdout.split()) == offered, found.stderr
    assert not set(json.loads(found.stderr.splitlines()[-1])) & {"torch", "timm", "numpy", "rich"} - _needed(line)


def _needed(line: str) -> set[str]:
    return {"rich"} if " list " in line else set()


def test_every_setting_is_offered_without_an_import_and_its_choices_with_one() -> None:
    for kind, known in (("instrument", plugins.instruments()), ("stress test", plugins.stress_tests())):
        offers = completion.instruments if kind == "instrument" else completion.stress_tests
        for name, reference in known.items():
            declared = list(inspect.signature(importlib.import_module(reference).measure).parameters)[2:]
            assert offers(f"{name}(") == [f"{name}({setting}=" for setting in declared]
    assert completion.stress_tests("adversarial(norm='l") == ["adversarial(norm='linf'", "adversarial(norm='l2'"]
    assert completion.instruments("calibration(bins=10, images=None") == ["calibration(bins=10, images=None"]
    assert completion.recipes("quick(part='cb_") == [
        f"quick(part='{each}'" for each in ("cb_s", "cb_gate", "cb_hybrid")
    ]
    assert completion.models("timm/x | UniformHead(form=") == [f"timm/x | UniformHead(form='{each}'" for each in "ABC"]


def test_settings_of_a_model_are_those_of_its_constructor(tmp_path: Path) -> None:
    declared = inspect.signature(RobustVisionTransformer.__init__).parameters
    offered = {each.removeprefix("vitlab/rvt_tiny(") for each in completion.models("vitlab/rvt_tiny(")}
    assert offered == {f"{name}=" for name in (*declared, "pretrained", "weights") if name not in ("self", "kwargs")}
    assert completion.models("timm/vit_tiny_patch16_224(depth=2, qkv") == [
        "timm/vit_tiny_patch16_224(depth=2, qkv_bias="
    ]
    assert completion.models("torchvision/resnet18(zero_init_residual=T") == [
        "torchvision/resnet18(zero_init_residual=True"
    ]
    assert completion.models("vitlab/no_such(") == completion.models("hf/not/here(") == []


def test_every_setting_of_data_is_offered_without_an_import() -> None:
    for name, settings in settings_table.data_set_settings().items():
        assert completion.data(f"{name}(") == [f"{name}({each.name}=" for each in settings]
    assert completion.data("cifar100(labels='") == ["cifar100(labels='fine'", "cifar100(labels='coarse'"]


@pytest.mark.parametrize("kind", ["parts", "instruments", "stress", "recipes", "models"])
def test_every_setting_of_every_name_is_offered(kind: str) -> None:
    """Completion reads names from files; `list --settings` imports them."""
    offer = {"stress": completion.stress_tests}.get(kind) or getattr(completion, "models" if kind == "parts" else kind)
    before = "timm/x | " if kind == "parts" else ""
    for name, settings in settings_table.KINDS[kind]().items():
        if "…" not in name:
            expected = [f"{before}{name}({each.name}=" for each in settings]
            assert offer(f"{before}{name}(") == expected
            for each in settings:
                values = [f"{before}{name}({each.name}={choice!r}" for choice in each.choices]
                assert offer(f"{before}{name}({each.name}=") == values


def test_every_name_is_offered() -> None:
    assert set(completion.data("")) == set(settings_table.data_set_settings())
    assert completion.instruments("") == list(plugins.instruments())
    assert completion.stress_tests("") == list(plugins.stress_tests())
    assert completion.recipes("") == list(plugins.recipes())
    assert completion.models("timm/x | ") == [f"timm/x | {name}" for name in plugins.parts()]
    assert completion.models("timm/x | SpatialSmoothing | Squeeze")[0].startswith("timm/x | SpatialSmoothing | Squeeze")
    assert completion.instruments("no_such") == []


def test_it_can_be_installed(tmp_path: Path) -> None:
    # Typer looks for the shell among its parents, and a test run may have none: name it instead.
    found = shell("--install-completion", "bash", HOME=str(tmp_path), _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert found.returncode == 0, found.stderr
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert "_VITLAB_COMPLETE=complete_bash" in script.read_text() and str(script) in (tmp_path / ".bashrc").read_text()
