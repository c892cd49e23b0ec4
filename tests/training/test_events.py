"""TensorBoard events: created with the first row, and read back by TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest

from vitlab.training.events import tensorboard_log, wandb_log


def test_events_equal_the_log_and_no_file_is_created_before(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = tensorboard_log(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    log({"step": 3, "epoch": 1, "train_loss": 2.5})
    found = accumulator.EventAccumulator(str(tmp_path / "run/events")).Reload()
    assert [(event.step, event.value) for event in found.Scalars("train_loss")] == [(3, 2.5)]


@pytest.mark.slow
def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written without a network, into the file that W&B would upload; its records are stored uncompressed."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = tmp_path / "run"
    folder.mkdir()
    log = wandb_log(folder, "vitlab-test")
    assert not list(folder.iterdir())
    log({"step": 3, "epoch": 1, "train_loss": 2.53125})
    wandb.finish()
    (file,) = folder.rglob("*.wandb")
    content = file.read_bytes()
    assert b"train_loss" in content and b"2.53125" in content and b"vitlab-test" in content
