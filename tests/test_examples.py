"""Every example runs at smoke size with the package only, without data and network, and names what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vitlab

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = {path.stem: path for folder in ("examples", "studies") for path in sorted((ROOT / folder).glob("*.py"))}


def run(example: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script in a separate process, in an empty folder, without VITLAB_DATA."""
    environment = {name: value for name, value in os.environ.items() if name != "VITLAB_DATA"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(example), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)


@pytest.mark.slow
@pytest.mark.parametrize("example", SCRIPTS.values(), ids=lambda path: path.stem)
def test_runs_at_smoke_size(example: Path, tmp_path: Path) -> None:
    ended = run(example, tmp_path, "--smoke", "--out", "out")
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert ended.stdout.strip()
    assert any(path.suffix in (".json", ".html") for path in (tmp_path / "out").rglob("*"))


#: Scripts that measure during training in loops of other libraries, and the package that each needs.
LOOPS = {"timm_training_loop": "timm", "huggingface_trainer": "accelerate", "lightning_training": "lightning"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "log"), [(name, log) for name in LOOPS for log in ("tensorboard", "wandb")])
def test_other_loops_log_every_n_steps(name: str, log: str, tmp_path: Path) -> None:
    pytest.importorskip(LOOPS[name], reason=f"{name} needs {LOOPS[name]}")
    pytest.importorskip(log, reason="needs vitlab[tracking]")
    ended = run(ROOT / f"examples/{name}.py", tmp_path, "--steps", "5", "--every", "2", "--out", "out", "--log", log)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    steps = sorted(path.parent.name for path in (tmp_path / "out").rglob("attention_entropy.json"))
    assert steps == ["step-000002", "step-000004"]
    if log == "wandb":
        assert list((tmp_path / "out/wandb").glob("offline-run-*/*.wandb"))
        return
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "out/events")).Reload()
    logged = {event.step: event.value for event in events.Scalars("attention_entropy/mean")}
    for step in (2, 4):
        stored = vitlab.Measurement.load(tmp_path / f"out/measurements/step-{step:06d}/attention_entropy")
        layers = stored.values["mean"].mean(1)
        assert logged[step] == pytest.approx(layers[len(layers) // 2 :].mean(), rel=1e-6)  # the deep half


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("huggingface_trainer", "accelerate"),
        ("huggingface_trainer", "transformers"),
        ("lightning_training", "lightning"),
    ],
)
def test_a_missing_library_is_one_line(name: str, missing: str, tmp_path: Path) -> None:
    script = ROOT / f"examples/{name}.py"
    code = f"import runpy, sys; sys.modules[{missing!r}] = None; sys.argv = ['x']; "
    code += f"runpy.run_path({str(script)!r}, run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "is not installed; pip install" in ended.stderr.strip().splitlines()[-1]
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "causal_trace_deit_tiny",
        "cifar100_context_broadcasting",
        "finetune_camvid",
        "finetune_deit_tiny_cifar100",
        "look_inside_deit_tiny",
        "stress_deit_tiny",
    ],
)
def test_missing_data_is_named(name: str, tmp_path: Path) -> None:
    ended = run(SCRIPTS[name], tmp_path)
    assert ended.returncode != 0
    assert "VITLAB_DATA" in ended.stderr and "KeyError" not in ended.stderr
    assert not (tmp_path / "runs").exists()
