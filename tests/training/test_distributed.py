"""Two gloo processes give the results of one: gradients, BatchNorm over both, exact counts at evaluation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

GRADIENTS = """
import torch, torch.distributed as dist, vitlab
from vitlab.core.recipe import Augment, Objective
from vitlab.data.resident import Resident
from vitlab.tasks.classification import make_loss
from vitlab.training.distributed import init_distributed, wrap
torch.set_num_threads(1)
world = init_distributed("cpu")
part, tolerance = {part!r}, {tolerance!r}
text = "timm/vit_tiny_patch16_224(img_size=16, patch_size=4, embed_dim=24, depth=2, num_heads=3, num_classes=5)"
whole = vitlab.load(text + part, seed=0).double().train()
half = vitlab.load(text + part, seed=0).double().train()
images = torch.randint(0, 255, (8, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
share = dict(settings=Augment(), batch_size=8, dtype=torch.float64)
one = next(iter(Resident(images, torch.arange(8) % 5, (0.5,) * 3, (0.5,) * 3, **share).epoch(0)))
feed = Resident(images, torch.arange(8) % 5, (0.5,) * 3, (0.5,) * 3, rank=world.rank, world=2, **share)
mine = next(iter(feed.epoch(0)))
assert len(mine.labels) == 4
loss = make_loss(Objective())
loss(whole, one).backward()
wrapped = wrap(half, world, sharded={sharded})  # kept: DDP averages while it lives
loss(wrapped, mine).backward()
from vitlab.training.distributed import full_tensor as gather
pairs = list(zip(half.named_parameters(), whole.parameters()))
worst = max(float((gather(p.grad) - q.grad).abs().max()) for (name, p), q in pairs)
assert worst <= tolerance, worst
assert sum(float(q.grad.abs().sum()) for _, q in pairs) > 0.1
for a, b in zip(half.buffers(), whole.buffers()):
    if a.is_floating_point():
        assert (gather(a) - b).abs().max() <= tolerance
dist.destroy_process_group()
"""

EVALUATION = """
import json, torch, vitlab
from dataclasses import replace
import sys
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
from test_loop import tiny
from vitlab.tasks.classification import run
row = run(tiny(epochs=1, data="scenes(train=16, test=21)", checkpoint_every=0, log_every=0), {folder!r})
print(json.dumps(row))
"""


#: gloo's threads sometimes abort an interpreter that is already being taken down; everything is asserted by then.
LEAVE = "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"


def two_processes(code: str, port: int, count: int = 2) -> list[str]:
    processes = []
    for rank in range(count):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        if count > 1:
            environment |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen([sys.executable, "-c", code + LEAVE], env=environment, **pipes))
    outputs = []
    for process in processes:
        output, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors[-3000:]
        outputs.append(output)
    return outputs


@pytest.mark.parametrize(
    ("part", "tolerance", "sharded"),
    [
        ("", 1e-10, False),
        (" | TokenAwarePooling(branches=3)", 1e-5, False),
        ("", 1e-10, True),
    ],
    ids=["plain", "batch norm over both", "sharded"],
)
def test_the_gradients_of_two_halves_are_those_of_the_whole(part: str, tolerance: float, sharded: bool) -> None:
    two_processes(
        GRADIENTS.format(part=part, tolerance=tolerance, sharded=sharded), 29520 + len(part) % 7 + 10 * sharded
    )


def test_an_evaluation_over_two_processes_counts_each_image_once(tmp_path: Path) -> None:
    """21 images do not divide by two: padded samplers would count one of them twice."""
    import json

    tests = str(ROOT / "tests/training")
    pair = two_processes(EVALUATION.format(tests=tests, folder=str(tmp_path / "two")), 29541)
    rows = [json.loads(output.splitlines()[-1]) for output in pair]
    assert rows[0]["top1"] == rows[1]["top1"]
    assert abs(rows[0]["top1"] * 21 / 100 - round(rows[0]["top1"] * 21 / 100)) < 1e-9


BATCH_NORM = """
import copy, timm, torch, torch.distributed as dist
from vitlab.training.distributed import synchronise_batch_norm
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
for norm, x in [
    (torch.nn.BatchNorm2d(3), 300 + 0.02 * torch.randn(8, 3, 4, 4)),
    (timm.layers.BatchNormAct2d(3), torch.randn(8, 3, 4, 4)),
]:
    twin = copy.deepcopy(norm)
    synchronise_batch_norm(torch.nn.Sequential(twin))
    for mode in (True, False):
        a, b = norm.train(mode)(x), twin.train(mode)(x)
        assert (a - b).abs().max() < 2e-2 * a.abs().max(), (type(norm), mode, (a - b).abs().max())
"""


def test_batch_norm_over_processes_is_batch_norm() -> None:
    """With large means, and with the activation that timm puts inside."""
    two_processes(BATCH_NORM, 29551, count=1)


SHARDED = """
import json, sys, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
from test_loop import tiny
from vitlab.tasks.classification import run
row = run(tiny(epochs=2, sharded=True, ema=0.0, snapshots=(1,), log_every=0), {folder!r}, device="cpu")
print(json.dumps(row))
"""


@pytest.mark.slow
def test_a_sharded_run_trains_and_leaves_a_model(tmp_path: Path) -> None:
    import vitlab

    two_processes(SHARDED.format(tests=str(ROOT / "tests/training"), folder=str(tmp_path / "run")), 29561)
    for name in ("model", "snapshots/epoch-0001"):
        assert vitlab.load(f"file/{tmp_path}/run/{name}.safetensors").num_classes == 25
