"""Reading: run folders give their training curves, and missing files are named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.reporting import read, report


def run(folder: Path, *rows: dict[str, float]) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"cut sho')
    return folder


def test_missing_paths_are_named(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match=f"no such file or folder: {tmp_path}/nothing"):
        read([tmp_path / "nothing"])
    Measurement("k", "a", {"x": np.array(1.0)}, {"x": ()}).save(tmp_path / "stem.one")
    assert len(read([tmp_path / "stem.one"])) == 1  # the stem of a measurement is no file, but stands for two


def test_a_run_folder_gives_its_training_curve(tmp_path: Path) -> None:
    rows = [
        {"epoch": 1, "train_loss": 3.0, "lr": 0.1},
        {"epoch": 2, "train_loss": 2.0, "loss": 2.5, "top1": 40.0, "top5": 70.0},
    ]
    run(tmp_path / "runs" / "tiny", {"step": 3, "seconds": 1}, *rows)
    (found,) = read([tmp_path / "runs", tmp_path / "runs" / "tiny"])
    assert (found.kind, found.subject, found.axes["epoch"]) == ("training", "tiny", (1, 2))
    np.testing.assert_array_equal(found.values["top1"], [np.nan, 40.0])
    np.testing.assert_array_equal(found.values["top5"], [np.nan, 70.0])
    np.testing.assert_array_equal(found.values["train_loss"], [3.0, 2.0])
    assert "Top-1 accuracy after the last epoch: 40.0 %" in report([found], tmp_path / "page.html").read_text()


def test_a_training_curve_has_the_recipe_of_its_run(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", {"epoch": 1, "loss": 0.5})
    (folder / "recipe.json").write_text('{"objective": {"diversification": 1.0}}')
    (curve,) = read([folder])
    assert curve.provenance["recipe"] == {"objective": {"diversification": 1.0}}
    (folder / "recipe.json").write_text('{"damaged')
    assert "recipe" not in read([folder])[0].provenance


def test_a_run_has_the_name_of_its_measurements_and_is_listed_once(tmp_path: Path) -> None:
    folder = run(tmp_path / "plain_ViT", {"epoch": 1, "top1": 50.0})
    Measurement("k", "plain ViT", {"x": np.array(1.0)}, {"x": ()}).save(folder / "measurements" / "k")
    assert [(m.kind, m.subject) for m in read([tmp_path])] == [("k", "plain ViT"), ("training", "plain ViT")]
    stored = Measurement("training", "plain ViT", {"top1": np.array([9.0])}, {"top1": ("epoch",)})
    stored.save(folder / "measurements" / "training")
    assert [float(m.values["top1"][0]) for m in read([tmp_path]) if m.kind == "training"] == [9.0]


def test_damaged_measurements_are_listed(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        Measurement("k", name, {"x": np.array(1.0)}, {"x": ()}, settings={"tau": 0.5}).save(tmp_path / name)
    for name in ("a", "c"):
        file = tmp_path / f"{name}.json"
        file.write_text(file.read_text().replace("0.5", "0.4"))
    with pytest.raises(VitlabError, match=r"2 of 3 files cannot be read: .*a.json.* checksum.*c.json.* checksum"):
        read([tmp_path])


def test_a_run_without_an_epoch_is_not_reported(tmp_path: Path) -> None:
    run(tmp_path / "new")
    with pytest.raises(VitlabError, match="no measurements and no epochs"):
        read([tmp_path])


def test_reading_runs_loads_no_torch(tmp_path: Path) -> None:
    folder = run(tmp_path / "tiny", {"epoch": 1, "top1": 50.0})
    code = f"import sys; from vitlab.reporting import read; read([{str(folder)!r}]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rows_of_single_steps_are_not_epochs(tmp_path: Path) -> None:
    """In files of earlier versions, too, whose rows of steps count epochs from 0; the last epoch is unfinished."""
    rows = []
    for epoch in range(3):
        rows += [{"step": 2 * epoch + i, "epoch": epoch, "train_loss": 9.0, "lr": 0.5} for i in (1, 2)]
        whole = {"step": 2 * epoch + 2, "epoch": epoch + 1, "train_loss": 3.0 - epoch, "images_per_second": 5.0}
        rows += [{**whole, "top1": 10.0 * epoch}]
    run(tmp_path / "tiny", *rows, {"step": 7, "epoch": 4, "train_loss": 9.0, "lr": 0.5})
    (found,) = read([tmp_path])
    assert found.axes["epoch"] == (1, 2, 3)
    assert found.values["top1"].tolist() == [0.0, 10.0, 20.0] and found.values["train_loss"].tolist() == [3.0, 2.0, 1.0]


def test_deeply_nested_json_raises(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "other.json").write_text('{"kind": ' * 100_000)
    with pytest.raises(VitlabError) as caught:
        read([tmp_path])
    assert "\n" not in str(caught.value)
    (tmp_path / "deep.npz").write_bytes(b"")  # arrays beside it: taken for a measurement, which is damaged
    with pytest.raises(VitlabError, match="deep.json.* damaged"):
        read([tmp_path])
