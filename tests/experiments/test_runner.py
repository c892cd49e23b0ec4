"""Jobs give the results of the functions that they call, are stored once, and resume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import vitlab
from experiments.small import DATA, ENTROPY, SHORT, TRAINED, VIT
from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Job, Results
from vitlab.core.measurement import Measurement
from vitlab.core.store import Run
from vitlab.experiments.runner import Task, execute, measured, trained
from vitlab.experiments.work import work_of
from vitlab.inputs import batches_for


def run(job: Job, out: Path) -> list[Measurement]:
    work = work_of(job)
    for each in work.needs:
        trained(each, out, device="cpu")
    return measured(work, out, device="cpu")


def test_an_instrument_measures_as_by_hand(tmp_path: Path) -> None:
    (found,) = run(replace(ENTROPY, seed=3), tmp_path)
    model = vitlab.load(VIT, seed=3)
    expected = vitlab.measure("attention_entropy", model, batches_for(model, DATA, 8))
    assert np.allclose(found.values["mean"], expected.values["mean"]) and found.subject == "plain"
    (other,) = run(ENTROPY, tmp_path)
    assert not np.array_equal(other.values["mean"], found.values["mean"]), "another seed, other weights"


def test_parts_of_the_images_are_entries_of_one_job(tmp_path: Path) -> None:
    parts = run(replace(ENTROPY, repeats=2), tmp_path)
    (whole,) = run(ENTROPY, tmp_path)
    assert len(parts) == 2
    results = Results([(ENTROPY, part) for part in parts])

    def mean(found: Measurement) -> float:
        return float(found.values["mean"].mean())

    assert set(results.by_part("plain", "attention_entropy", mean)) == {(0, 1), (0, 2)}
    assert results.by_seed("plain", "attention_entropy", mean)[0] == pytest.approx(mean(whole), rel=1e-5)


def test_a_result_is_computed_once_and_shared_by_arms(tmp_path: Path) -> None:
    (first,) = run(TRAINED, tmp_path)
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()}
    (second,) = run(replace(TRAINED, arm="baseline"), tmp_path)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()} == files
    assert (first.subject, second.subject) == ("plain", "baseline")
    assert np.array_equal(first.values["top1"], second.values["top1"])


def test_training_is_measured_by_epoch(tmp_path: Path) -> None:
    (found,) = run(TRAINED, tmp_path)
    rows = Run(work_of(TRAINED).needs[0].folder(tmp_path)).epochs()
    assert found.axes["epoch"] == (1, 2) and found.dims["top1"] == ("epoch",)
    assert found.values["train_loss"].tolist() == [row["train_loss"] for row in rows]
    assert Results([(TRAINED, found)]).by_seed("plain", "training", "top1") == {0: rows[-1]["top1"]}


def test_trained_weights_and_snapshots_are_measured(tmp_path: Path) -> None:
    changes = (*SHORT, "snapshots=(1,)")
    last, first = (
        run(replace(ENTROPY, model="", recipe="quick", changes=changes, snapshot=snapshot), tmp_path)[0]
        for snapshot in (None, 1)
    )
    folder = work_of(replace(TRAINED, changes=changes)).needs[0].folder(tmp_path)
    for found, file in ((last, "model.safetensors"), (first, "snapshots/epoch-0001.safetensors")):
        weights = vitlab.identity.identify(vitlab.load(f"file/{folder / file}")).weights
        assert found.provenance["model"]["weights"] == weights


def test_a_model_starts_from_trained_weights(tmp_path: Path) -> None:
    text = f"{VIT[:-1]}, weights='{{trained}}') | ContextBroadcast"
    with pytest.warns(UserWarning, match="ContextBroadcast changed the outputs of trained weights"):
        (found,) = run(replace(ENTROPY, model=text, trained="quick", changes=SHORT), tmp_path)
    folder = work_of(TRAINED).needs[0].folder(tmp_path)
    model = vitlab.retrofit(vitlab.load(f"file/{folder}"), "ContextBroadcast")
    assert found.provenance["model"]["weights"] == vitlab.identity.identify(model).weights


def test_sizes_blocks_and_speed(tmp_path: Path) -> None:
    sizes, blocks, speed = (
        run(Job("vit", procedure, model=VIT), tmp_path)[0]
        for procedure in ("sizes", "blocks", "speed(batch_size=2, steps=1)")
    )
    model = vitlab.load(VIT)
    assert sizes.values["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert blocks.values["mixer"].tolist() == ["attention", "attention"]
    assert blocks.values["grid"].tolist() == [[4, 4], [4, 4]] and blocks.values["channels"].tolist() == [24, 24]
    assert speed.values["images_per_second"] > 0
    recipe = run(Job("vit", "sizes", recipe="quick", changes=SHORT), tmp_path)[0]
    assert recipe.values["macs"] == sizes.values["macs"] and not (tmp_path / "runs").exists()


def test_an_interrupted_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends after its first epoch resumes there and gives the bits of an uninterrupted run."""
    job = replace(TRAINED, changes=(*SHORT, "checkpoint_every=2"))
    (whole,) = run(job, tmp_path / "whole")
    log = Run.log

    def end(self: Run, row: dict) -> None:
        log(self, row)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "log", end)
        with pytest.raises(KeyboardInterrupt):
            run(job, tmp_path / "parts")
    (resumed,) = run(job, tmp_path / "parts")
    assert resumed.values["train_loss"].tolist() == whole.values["train_loss"].tolist()


def test_a_failed_task_gives_its_reason(tmp_path: Path) -> None:
    task = Task(work_of(replace(ENTROPY, model="timm/no_such_model")), tmp_path, device="cpu")
    assert "no_such_model" in execute(task)
    assert not (tmp_path / "measurements").exists()
    with pytest.raises(VitlabError, match="needs recipe="):
        measured(work_of(replace(ENTROPY, procedure="training")), tmp_path)


def test_torch_state_is_unchanged(tmp_path: Path) -> None:
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    run(ENTROPY, tmp_path)
    assert torch.equal(torch.rand(2), expected)
