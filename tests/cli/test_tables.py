"""Tables of key numbers: on stdout, as text for people and as numbers for programs."""

from __future__ import annotations

import io
import json
import math
import re
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from vitlab.cli.commands import app
from vitlab.cli.tables import show_numbers
from vitlab.core.measurement import Measurement


def store(folder: Path, subject: str, accuracy: float, part: int = 1, images: int = 16) -> Path:
    values = {"accuracy": np.array(accuracy), "accuracy_error": np.array(0.01), "nll": np.array(1.5)}
    values |= {"ece": np.array(0.1), "brier": np.array(0.4)}
    about = {
        "model": {"name": subject, "weights": subject * 8, "origin": f"file: {subject}"},
        "data": f"scenes test[{part}:32:2] {part}",
        "images": images,
        "preprocessing": {"size": [32, 32], "crop": 0.9, "interpolation": "bicubic"},
    }
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(values, ())
    stem = folder / f"{subject}-{part}"
    Measurement("calibration", subject, values, dims, {}, {}, about, {"accuracy": "accuracy_error"}).save(stem)
    return stem.with_name(f"{stem.name}.json")


def test_the_table_of_show_is_its_output(tmp_path: Path) -> None:
    store(tmp_path, "a", 0.7)
    store(tmp_path, "b", 0.8)
    found = CliRunner().invoke(app, ["show", str(tmp_path)])
    assert found.exit_code == 0 and not found.stderr
    (line,) = [line for line in found.stdout.splitlines() if "accuracy" in line and "70.0" in line]
    assert line.split()[-10:] == ["70.0", "±", "2.0", "80.0", "±", "2.0", "+10.0", "±", "2.8", "(clear)"]
    assert "\x1b" not in found.stdout and all(line == line.rstrip() for line in found.stdout.splitlines())


def test_wrapped_names_are_indented_in_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 40 columns only the title of a kind starts a line of the table."""
    store(tmp_path, "a", 0.7)
    monkeypatch.setattr("vitlab.cli.tables.Console", partial(Console, width=40, force_terminal=True, no_color=True))
    printed = io.StringIO()
    with redirect_stdout(printed):
        show_numbers([tmp_path])
    table = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue()).partition("weights of")[0]
    starts = [line for line in table.splitlines() if line.strip() and not line.startswith("  ")]
    assert [line.strip() for line in starts] == ["calibration"]
    assert any(line.startswith("  (ECE)") for line in table.splitlines()), "the name of a number is wrapped"


def test_a_piped_command_that_prints_paths_prints_the_table_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_numbers([store(tmp_path, "a", 0.7)], beside_paths=True)
    printed = capsys.readouterr()
    assert not printed.out and "70.0 ± 2.0" in printed.err


def test_json_has_numbers_in_their_unit(tmp_path: Path) -> None:
    """0.70 ± 1.96 · 0.01 against 0.80: 10 points, with a half width of 1.96 · √2 points."""
    store(tmp_path, "a", 0.7)
    store(tmp_path, "b", 0.8)
    found = json.loads(CliRunner().invoke(app, ["show", str(tmp_path), "--json"]).stdout)
    (row,) = [row for row in found["numbers"] if row["number"].startswith("accuracy")]
    first, second = row["values"]
    assert row["unit"] == "%" and first["value"] == pytest.approx(70) and second["value"] == pytest.approx(80)
    assert first["half_width"] == pytest.approx(1.96, abs=0.001) and first["difference"] is first["state"] is None
    assert second["difference"] == pytest.approx(10) and second["state"] == "clear"
    assert second["difference_half_width"] == pytest.approx(1.96 * math.sqrt(2), abs=0.001)
    (nll,) = [row for row in found["numbers"] if row["unit"] == "nats"]
    assert nll["values"][1]["state"] == "unknown" and nll["values"][1]["half_width"] is None
    assert [model["weights"] for model in found["models"]] == ["file: a", "file: b"]
    assert found["models"][0]["data"] == [{"name": "scenes", "images": [16]}]
    assert found["models"][0]["preprocessing"][0]["size"] == [32, 32]


def test_the_images_of_all_parts_are_counted(tmp_path: Path) -> None:
    store(tmp_path, "a", 0.7, part=0)
    store(tmp_path, "a", 0.8, part=1)
    text = CliRunner().invoke(app, ["show", str(tmp_path)]).stdout
    assert "data: scenes, 32 images\n" in text


def test_calibration_begins_with_the_accuracy(tmp_path: Path) -> None:
    """Also if the other numbers have errors and the accuracy has none, which would put it last."""
    plain = Measurement.load(store(tmp_path, "a", 0.7))
    errors = dict.fromkeys(("nll", "ece", "brier"), "accuracy_error")
    replace(plain, errors=errors).save(tmp_path / "a-1")
    lines = CliRunner().invoke(app, ["show", str(tmp_path)]).stdout.splitlines()
    assert lines[lines.index("calibration") + 1].split()[0].startswith("accuracy")


def test_unknown_noise_and_eigenvalues_that_did_not_converge_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Power iterations that stop at the limit give numbers that are not those of the model."""
    dims: dict[str, tuple[str, ...]] = {"eigenvalues": ("mini_batch", "rank"), "converged": ("mini_batch", "rank")}
    dims |= {"negative_proportion": (), "positive_average": ()}
    paths = []
    for name, good in (("a", True), ("b", False)):
        values = {"eigenvalues": np.array([[-9.0, 3.0]]), "converged": np.array([[True, good]])}
        values |= {"negative_proportion": np.array(0.5), "positive_average": np.array(3.0)}
        stem = tmp_path / name
        Measurement("hessian_spectrum", name, values, dims, {}, {"limit": 12}).save(stem)
        paths.append(stem.with_name(f"{name}.json"))
    show_numbers(paths)
    both = capsys.readouterr().out
    assert "Not converged within 12 products: 1 of 2 eigenvalues of b." in both and "increase limit" in both
    assert "(noise not known)" in both and "noise not known: measure with --repeats 3 or more" in both
    show_numbers(paths[:1])
    one = capsys.readouterr().out
    assert "onverged" not in one and "noise not known" not in one
