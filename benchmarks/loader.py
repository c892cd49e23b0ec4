"""Images per second of the evaluation loader over a folder of JPEGs, compared with timm's `create_loader`.

Both resize, crop and normalise every image of the folder once, with the same number of worker processes. Loaders are
created for each round, as in an evaluation. Peak memory is that of a new process and its workers, shared pages counted
once.

    python benchmarks/loader.py FOLDER [--workers 0,2] [--crop 0.9] [--repeats 5] [--json PATH]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import timing
import torch
from timm.data import create_loader
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor
from torch.utils.data import Dataset

from vitlab.data.catalogue import open_data
from vitlab.data.images import ImageFiles
from vitlab.data.streaming import ImageStream
from vitlab.preprocessing import Preprocessing

SIZE = 224


def vitlab_batches(images: ImageFiles, batch_size: int, workers: int, crop: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Returns batches of vitlab's evaluation loader."""
    how = Preprocessing((SIZE, SIZE), crop=crop)
    outputs = range(len(images.classes))
    return iter(ImageStream(images, how.transform(), how.mean, how.std, batch_size, outputs, processes=workers))


def timm_batches(images: ImageFiles, batch_size: int, workers: int, crop: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Returns batches of timm's loader over the same files."""
    loader = create_loader(
        Files(images),
        input_size=(3, SIZE, SIZE),
        batch_size=batch_size,
        use_prefetcher=False,
        interpolation="bicubic",
        mean=IMAGENET_DEFAULT_MEAN,
        std=IMAGENET_DEFAULT_STD,
        num_workers=workers,
        crop_pct=crop,
        persistent_workers=False,
    )
    return iter(loader)


class Files(Dataset[Any]):
    """The files as a timm data set: decoded by PIL, then `transform`."""

    transform: Callable[[Any], Any] | None = None

    def __init__(self, images: ImageFiles) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        image, label = self.images[i]
        return (image if self.transform is None else self.transform(image)), label


LOADERS = {"timm": timm_batches, "vitlab": vitlab_batches}


def opened(folder: str, count: int) -> ImageFiles:
    """Returns `count` evenly spaced images; all with 0."""
    images = open_data(f"folder(path={folder!r})").test
    assert isinstance(images, ImageFiles)
    return images.subset([i * len(images) // count for i in range(count)]) if count else images


def load_all(name: str, images: ImageFiles, options: argparse.Namespace, workers: int) -> None:
    """Load every image once."""
    seen = sum(len(labels) for _, labels in LOADERS[name](images, options.batch, workers, options.crop))
    assert seen == len(images), f"{name}: {seen} of {len(images)} images"


def peak_memory(name: str, options: argparse.Namespace, workers: int) -> float:
    """Returns the peak megabytes of a new process and its workers while they load the folder."""
    command = [sys.executable, __file__, options.folder, "--images", str(options.images), "--only", name]
    command += ["--workers", str(workers), "--batch", str(options.batch), "--crop", str(options.crop)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_proportional, _tree(process.pid))))
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{name} failed")
    return peak / 1024


def _tree(pid: int) -> list[int]:
    """Returns a process and its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in _tree(int(child)))]


def _proportional(pid: int) -> int:
    """Returns the kilobytes of a process, with shared pages divided by the number of sharers."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def compare(images: ImageFiles, options: argparse.Namespace, workers: int) -> dict[str, dict[str, float]]:
    """Compare both loaders, interleaved; returns a table."""
    runs = {name: lambda name=name: load_all(name, images, options, workers) for name in LOADERS}
    table = timing.ratios(timing.interleaved(runs, options.repeats), "timm")
    timing.show(f"{len(images)} images, {workers} workers, {torch.get_num_threads()} threads", table)
    for name, row in table.items():
        row["images_per_second"] = len(images) / row["seconds"]
        row["peak_megabytes"] = peak_memory(name, options, workers)
        print(f"{name}: {row['images_per_second']:,.0f} images/s, at most {row['peak_megabytes']:,.0f} MB")
    print(f"vitlab loads {1 / table['vitlab']['ratio']:.2f}x as many images per second as timm")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="one folder per class, or train/ and val/ with class folders")
    parser.add_argument("--workers", default="0,2", help="worker processes; several numbers, separated by commas")
    parser.add_argument("--images", type=int, default=0, help="number of images; 0 for all")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument(
        "--crop", type=float, default=0.9, help="crop side over the shorter image side, for timm's loader"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=LOADERS, help="load once with this loader, without measuring")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    images = opened(options.folder, options.images)
    counts = [int(count) for count in options.workers.split(",")]
    if options.only:
        load_all(options.only, images, options, counts[0])
        return
    tables = {f"{workers} workers": compare(images, options, workers) for workers in counts}
    timing.write(options.json, {"images": len(images), "batch": options.batch, "crop": options.crop, **tables})


if __name__ == "__main__":
    main()
