"""Every example runs at smoke size, without data, network or anything but the package; and says what it misses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(example: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script in a process of its own, in an empty folder, without VITLAB_DATA."""
    environment = {name: value for name, value in os.environ.items() if name != "VITLAB_DATA"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(example), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_runs_at_smoke_size(example: Path, tmp_path: Path) -> None:
    ended = run(example, tmp_path, "--smoke", "--out", "out")
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert ended.stdout.strip()
    assert any(path.suffix in (".json", ".html") for path in (tmp_path / "out").rglob("*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "cifar100_context_broadcasting",
        "finetune_camvid",
        "finetune_deit_tiny_cifar100",
        "look_inside_deit_tiny",
        "stress_deit_tiny",
    ],
)
def test_says_what_data_it_misses(name: str, tmp_path: Path) -> None:
    ended = run(ROOT / f"examples/{name}.py", tmp_path)
    assert ended.returncode != 0
    assert "VITLAB_DATA" in ended.stderr and "KeyError" not in ended.stderr
    assert not (tmp_path / "runs").exists()
