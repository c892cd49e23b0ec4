"""Segmentation in two gloo processes: DDP finds a gradient for each parameter, and the metric counts pixels once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

TRAIN = """
import json, os, sys, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
from tasks.test_segmentation import TINY
from vitlab.core.recipe import change
from vitlab.tasks import train_task
recipe = change(TINY, {{"data": "scenes(train=8, test=5, objects=2, labels='shape')"}})
row = train_task(recipe, {folder!r}, device="cpu")
print(json.dumps(row))
sys.stdout.flush()
os._exit(0)
"""


def train(folder: Path, processes: int) -> dict[str, float]:
    """The last row of a run in some processes."""
    started = []
    for rank in range(processes):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        if processes > 1:
            own = {"RANK": str(rank), "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29617"}
            environment |= own
        code = TRAIN.format(tests=str(ROOT / "tests"), folder=str(folder))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes))  # type: ignore[call-overload]
    outputs = []
    for process in started:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-3000:]
        outputs.append(output)
    row: dict[str, float] = json.loads(outputs[0].splitlines()[-1])
    return row


@pytest.mark.slow
def test_two_processes_give_the_metrics_of_one(tmp_path: Path) -> None:
    one, two = train(tmp_path / "one", 1), train(tmp_path / "two", 2)
    assert one["test_images"] == two["test_images"] == 5
    # Each process divides by its own number of counted pixels, so that the losses differ a little.
    assert two["train_loss"] == pytest.approx(one["train_loss"], rel=0.05)
    assert two["pixel_accuracy"] == pytest.approx(one["pixel_accuracy"], abs=10)
