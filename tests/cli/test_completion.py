"""Shell completion, requested as a shell does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitlab.cli import completion
from vitlab.core import plugins

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
        ("vitlab train deit_d", {"deit_distilled"}),
        ("vitlab list inst", {"instruments"}),
        ("vitlab describe tor", {"torchvision/"}),
        ("vitlab measu", {"measure"}),
    ],
)
def test_a_shell_is_answered_without_torch(line: str, offered: set[str]) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    found = shell(_VITLAB_COMPLETE="complete_bash", **words)
    assert set(found.stdout.split()) == offered, found.stderr
    assert not set(json.loads(found.stderr.splitlines()[-1])) & {"torch", "timm", "numpy", "rich"} - _needed(line)


def _needed(line: str) -> set[str]:
    return {"rich"} if " list " in line else set()


def test_every_name_is_offered() -> None:
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
