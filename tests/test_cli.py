"""The command line: verbs, exit codes, one-line errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TINY = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)"


def vitlab(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "vitlab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder or ROOT, check=False)


def test_help_names_the_verbs() -> None:
    text = vitlab("--help").stdout
    assert all(verb in text for verb in ("list", "describe", "measure", "stress", "train", "report", "demo"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("parts", "ContextBroadcast"),
        ("families", "deit"),
        ("instruments", "attention_entropy"),
        ("stress", "corruptions"),
        ("recipes", "quick"),
    ],
)
def test_list_prints_one_full_name_a_line_off_a_terminal(kind: str, name: str) -> None:
    found = vitlab("list", kind)
    lines = found.stdout.splitlines()
    assert name in lines and all(" " not in line for line in lines)
    assert f"{len(lines)} {kind}" in found.stderr
    assert name in json.loads(vitlab("list", kind, "--json").stdout)


def test_the_families_are_counted() -> None:
    count = int(vitlab("list", "families").stderr.split()[0])
    assert count >= 34


def test_describe_says_family_weights_and_seams() -> None:
    text = vitlab("describe", TINY).stdout
    assert "family vit" in text and "weights: random" in text and "mlp.out" in text and "4x4" in text
    plain = json.loads(vitlab("describe", TINY, "--json").stdout)
    assert plain["blocks"][0]["seams"]["mlp.out"]["dim"] == 24


def test_measure_and_report(tmp_path: Path) -> None:
    found = vitlab("measure", TINY, "--with", "attention_entropy,calibration(bins=5)", "--images", "4", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    paths = found.stdout.split()
    assert len(paths) == 2 and all((tmp_path / path).exists() for path in paths)
    stamp = (tmp_path / paths[0]).stat().st_mtime_ns
    again = vitlab("measure", TINY, "--with", "attention_entropy", "--images", "4", folder=tmp_path)
    assert again.returncode == 0 and (tmp_path / paths[0]).stat().st_mtime_ns == stamp, "measured again"
    made = vitlab("report", "runs/measure", "-o", "page.html", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "attention_entropy" in (tmp_path / "page.html").read_text()


def test_stress(tmp_path: Path) -> None:
    asked = (
        "corruptions(names=('fog', 'snow'), severities=3),patch_shuffle(seed=1, grids=(2, 4)),shape_texture(count=9)"
    )
    found = vitlab("stress", TINY, "--with", asked, "--images", "4", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    paths = [tmp_path / path for path in found.stdout.split()]
    assert [path.stem.partition("-")[0] for path in paths] == ["corruptions", "patch_shuffle", "shape_texture"]
    assert json.loads(paths[1].read_text())["settings"]["grids"] == [2, 4]
    stamps = [path.stat().st_mtime_ns for path in paths]
    assert vitlab("stress", TINY, "--with", asked, "--images", "4", folder=tmp_path).returncode == 0
    assert [path.stat().st_mtime_ns for path in paths] == stamps, "measured again"


def test_train(tmp_path: Path) -> None:
    arguments = ("train", "quick(images=64, epochs=1)", "--out", "run", "--set", "batch_size=32", "--device", "cpu")
    found = vitlab(*arguments, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "top1" in found.stdout and (tmp_path / "run/model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "partz"), "did you mean 'parts'"),
        (("describe", "timmm/x"), "did you mean 'timm'"),
        (("describe", "timm/vit_tiny_patch16_244"), "vit_tiny_patch16_224"),
        (("describe", "timm/x(__import__('os').system('true'))"), "key=value"),
        (("describe", TINY, "--size", "big"), "224x320"),
        (("measure", TINY, "--with", "entropy"), "attention_entropy"),
        (("measure", TINY, "--data", "cifra100"), "did you mean 'cifar100'"),
        (("stress", TINY, "--with", "corruption"), "did you mean 'corruptions'"),
        (("train", "qick"), "did you mean 'quick'"),
        (("train", "quick", "--set", "optimizer.lrr=1"), "lr"),
        (("report", "nowhere"), "nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    found = vitlab(*arguments, folder=tmp_path)
    assert found.returncode == 2, found.stderr
    assert message in found.stderr and "Traceback" not in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1
