"""Run a kind of work repeatedly, killed with SIGKILL at seeded points, and then to its end.

The work runs in forks of one process, which imports torch once. A point is an access to a file in the folder of the
work: the number of accesses is counted in an uninterrupted run.
Usage: killed.py KIND FOLDER POINTS SEED; writes FOLDER/whole, FOLDER/killed-N and FOLDER/points.json.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from vitlab import reporting, runner
from vitlab.core.measurement import Measurement
from vitlab.core.recipe import Augment, Optimizer, Recipe
from vitlab.core.store import Run
from vitlab.tasks import train_task

MODEL = "timm/vit_tiny_patch16_224(img_size=16, patch_size=4, embed_dim=24, depth=2, num_heads=3, num_classes=25)"
DATA = "scenes(train=48, test=24)"
ACCESSES = ("open", "os.rename", "os.remove", "os.mkdir", "shutil.rmtree")


def train(folder: Path) -> None:
    """A training run with averaged weights, snapshots and checkpoints."""
    recipe = Recipe(
        model=MODEL.replace(")", ", drop_path_rate=0.2, proj_drop_rate=0.1)"),
        data=DATA,
        image_size=(16, 16),
        epochs=3,
        batch_size=8,
        augment=Augment(mixup=0.8, cutmix=1.0, randaugment="rand-m9-n2", erasing=0.25),
        optimizer=Optimizer(warmup_epochs=1, clip=1.0),
        ema=0.9,
        checkpoint_every=2,
        log_every=1,
        snapshots=(1, 2),
    )
    train_task(recipe, folder)


def measure(folder: Path) -> None:
    """Instruments of a shared pass, and two of several passes, on two parts of the images."""
    names = ["attention_entropy", "attention_diversity", "lesion", "calibration"]
    list(runner.measure([MODEL], names, folder, data=DATA, images=8, repeats=2, show=False))


def stress(folder: Path) -> None:
    """Corruptions, whose steps are cached, and occlusion."""
    names = ["corruptions(names=('fog', 'contrast', 'pixelate'))", "occlusion"]
    list(runner.stress([MODEL], names, folder, data=DATA, images=8, show=False))


def report(folder: Path) -> None:
    """Two measurements and their page."""
    for name in ("a", "b"):
        values = {"mean": np.linspace(0, len(name), 6).reshape(2, 3)}
        about = {"time": f"2026-01-0{ord(name) - 96}", "model": {"name": name, "weights": name}}
        dims = {"mean": ("layer", "head")}
        Measurement("attention_entropy", name, values, dims, provenance=about).save(folder / name)
    reporting.report(reporting.read([folder / "a.json", folder / "b.json"]), folder / "report.html")


KINDS: dict[str, Callable[[Path], None]] = {"train": train, "measure": measure, "stress": stress, "report": report}


def killed_at(kind: str, folder: Path, last: int) -> int:
    """Do the work in a fork, which kills itself at an access; returns the number of accesses, or 0 if it was killed.

    Args:
        kind: the work.
        folder: its folder.
        last: the number of the access; 0 for an uninterrupted run.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        _work(kind, folder, last, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        output = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status not in (0, -signal.SIGKILL) or (status == 0) != (last == 0):
        raise SystemExit(f"{kind} in {folder} ended with {status}")
    return int(output or 0)


def _work(kind: str, folder: Path, last: int, pipe: int) -> None:
    count, prefix = 0, str(folder)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event in ACCESSES and str(arguments[0]).startswith(prefix):
            count += 1
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    try:
        KINDS[kind](folder)
        os.write(pipe, str(count).encode())
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(kind: str, folder: Path, points: int, seed: int) -> None:
    """Run all points."""
    torch.set_num_threads(1)
    accesses = killed_at(kind, folder / "whole", 0)
    chosen = random.Random(seed).sample(range(1, accesses + 1), points)
    for number, point in enumerate(chosen):
        killed_at(kind, folder / f"killed-{number}", point)
        killed_at(kind, folder / f"killed-{number}", 0)
    (folder / "points.json").write_text(json.dumps({"accesses": accesses, "points": chosen}))


def results(folder: Path) -> dict[str, object]:
    """The results in a folder by file, without times and speeds; other files, such as unfinished ones, have None.

    Locks and checkpoints are omitted: a process that is killed after its last checkpoint leaves one more of them.
    """
    found: dict[str, object] = {}
    omitted = {folder / ".lock", *folder.glob("checkpoints/step-*.safetensors")}
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path not in omitted):
        name = str(file.relative_to(folder))
        if file.name == "metrics.jsonl":
            rows = Run(folder).metrics()
            found[name] = [{key: row[key] for key in row if key != "images_per_second"} for row in rows]
        elif file.suffix == ".json" and file.with_suffix(".npz").exists():
            text = json.loads(file.read_text())
            del text["provenance"]["time"], text["checksum"]
            found[name] = text
        elif file.suffix in (".safetensors", ".npz", ".html") or file.name == "recipe.json":
            found[name] = file.read_bytes()
        else:
            found[name] = None
    return found


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
