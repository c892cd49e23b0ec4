"""Segmentation in two gloo processes: DDP finds a gradient for each parameter, and the metric counts pixels once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from torch import Tensor, nn

from vitlab.data.segmentation_sets import open_pairs
from vitlab.preprocessing import Preprocessing

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


RAW = Preprocessing((16, 16), (0.0,) * 3, (1.0,) * 3)


class Brightness(nn.Module):
    """Predicts six classes by the red of a pixel."""

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.one_hot((images[:, 0] * 5.99).long(), 6).permute(0, 3, 1, 2).float()


#: The metric on five images, three of which the first of two processes takes.
MEASURE = """
import json, os, sys, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
from tasks.test_segmentation import TINY
from tasks.test_segmentation_distributed import RAW, Brightness
from vitlab.data.segmentation_sets import open_pairs
from vitlab.tasks.segmentation import MeanIoU
from vitlab.training.distributed import process_group
with process_group("cpu") as world:
    data = open_pairs("scenes(train=1, test=5, objects=2, labels='shape')", image_size=16)
    print(json.dumps(MeanIoU(data, world, TINY, RAW)(Brightness())))
    sys.stdout.flush()
os._exit(0)
"""


def run(script: str, folder: Path, processes: int) -> dict[str, float]:
    """The row that a script prints last in the first of some processes."""
    started = []
    for rank in range(processes):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        if processes > 1:
            own = {"RANK": str(rank), "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29617"}
            environment |= own
        code = script.format(tests=str(ROOT / "tests"), folder=str(folder))
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
    one, two = run(TRAIN, tmp_path / "one", 1), run(TRAIN, tmp_path / "two", 2)
    assert one["test_images"] == two["test_images"] == 5
    # Each process divides by its own number of counted pixels, so that the losses differ a little.
    assert two["train_loss"] == pytest.approx(one["train_loss"], rel=0.05)
    assert two["pixel_accuracy"] == pytest.approx(one["pixel_accuracy"], abs=10)


@pytest.mark.slow
def test_mean_iou_of_two_processes_is_that_of_all_images(tmp_path: Path) -> None:
    """Sets of labelled and predicted pixels of every image and class; the confusion matrix is not used."""
    data = open_pairs("scenes(train=1, test=5, objects=2, labels='shape')", image_size=16)
    labelled: dict[int, set[tuple[int, int]]] = defaultdict(set)
    predicted: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for image in range(5):
        pixels, labels = data.test[image]
        answers = Brightness()(pixels[None] / 255)[0].argmax(0).flatten().tolist()
        for place, (label, answer) in enumerate(zip(labels.flatten().tolist(), answers, strict=True)):
            labelled[label].add((image, place))
            predicted[answer].add((image, place))
    shares = [
        len(labelled[each] & predicted[each]) / len(labelled[each] | predicted[each])
        for each in labelled.keys() | predicted.keys()
    ]
    assert sum(shares) > 0.05
    found = run(MEASURE, tmp_path, 2)
    assert found["test_images"] == 5
    assert found["miou"] == pytest.approx(100 * sum(shares) / len(shares))
