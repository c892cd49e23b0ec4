"""Time to augment an epoch of a device-resident set: in total and by stage, eager and compiled.

    PYTHONPATH=src python benchmarks/augment.py [--images 50000] [--batch 512] [--chunk 16384] [--repeats 5]

On CUDA 50,000 images of 32 × 32 to bfloat16, on the CPU 2,048 to float32. Eager and compiled epochs are interleaved;
median and range in milliseconds. `host` is the time until all work is queued.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from vitlab.core.recipe import Augment
from vitlab.data.augment import draw_augment, normalise
from vitlab.data.cropping import crop_and_flip
from vitlab.data.device_copy import per_channel, to_device
from vitlab.data.erasing import erase
from vitlab.data.mixing import Mixes, draw_mixes, mix_images
from vitlab.data.randaugment import apply_layer
from vitlab.data.resident import Resident
from vitlab.data.seeding import seeded_generator

FULL = Augment(randaugment="rand-m9-n2-mstd0.5-inc1", erasing=0.25, mixup=0.8, cutmix=1.0)
WEAK = Augment(mixup=0.8, cutmix=1.0)
MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def synchronise() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def clock(work: Callable[[], object]) -> tuple[float, float]:
    """Returns the milliseconds until the work is queued, and until it is done."""
    synchronise()
    start = time.perf_counter()
    work()
    queued = time.perf_counter()
    synchronise()
    return 1e3 * (queued - start), 1e3 * (time.perf_counter() - start)


def line(name: str, times: list[float], note: str = "") -> None:
    low, high = min(times), max(times)
    print(f"{name:34s} {statistics.median(times):9.2f} ms  ({low:.2f} to {high:.2f}){note}")


def iterate(data: Resident, epoch: int) -> None:
    for _ in data.epoch(epoch):
        pass


def epochs(options: argparse.Namespace, images: torch.Tensor, labels: torch.Tensor) -> None:
    dtype = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
    kinds = {
        f"{name}, {'compiled' if compiled else 'plain'}": Resident(
            images, labels, MEAN, STD, settings, options.batch, dtype=dtype, compiled=compiled, chunk=options.chunk
        )
        for name, settings in (("full", FULL), ("crop, flip, mix", WEAK))
        for compiled in ((False, True) if options.compile else (False,))
    }
    for name, data in kinds.items():
        print(f"{name:34s} {clock(lambda data=data: iterate(data, 0))[1]:9.0f} ms  first epoch, including compilation")
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for epoch in range(1, options.repeats + 1):
        for name, data in kinds.items():
            taken[name].append(clock(lambda data=data, epoch=epoch: iterate(data, epoch)))
    for name, pairs in taken.items():
        rate = 1e3 * options.images / statistics.median(done for _, done in pairs)
        line(f"epoch: {name}", [done for _, done in pairs], f"  {rate:,.0f} images/s")
        line("  host", [queued for queued, _ in pairs])


def stages(options: argparse.Namespace, images: torch.Tensor) -> None:
    """Time one chunk by stage, eager; scaled to the epoch."""
    size = (images.shape[2], images.shape[3])
    batches = max(min(options.chunk or 16384, len(images)) // options.batch, 1)
    chunk = images[: batches * options.batch]
    mean, std = per_channel(MEAN, DEVICE), per_channel(STD, DEVICE)

    def draw() -> object:
        return draw_augment(len(chunk), (3, *size), FULL, seeded_generator(DEVICE, "augment", 0))

    draws = draw_augment(len(chunk), (3, *size), FULL, seeded_generator(DEVICE, "augment", 0))
    mixes = Mixes(*(to_device(part, DEVICE) for part in draw_mixes(FULL, size, 0, 0, range(batches))))
    fill, normal = 255 * mean.flatten(), normalise(chunk, mean, std)
    assert draws.crops is not None and draws.erasing is not None
    crops, erasing = draws.crops, draws.erasing
    work = {
        "draw": draw,
        "draw the mixes (host)": lambda: draw_mixes(FULL, size, 0, 0, range(batches)),
        "crop and flip": lambda: crop_and_flip(chunk, crops),
        "RandAugment, one layer": lambda: apply_layer(chunk, draws.layers[0], True, fill),
        "normalise": lambda: normalise(chunk, mean, std),
        "erase": lambda: erase(normal, erasing),
        "mix, to bfloat16": lambda: mix_images(normal.unflatten(0, (batches, -1)), mixes).to(torch.bfloat16),
    }
    scale = options.images / len(chunk)
    print(f"stages, plain, chunks of {len(chunk)}, scaled to {options.images} images")
    for name, act in work.items():
        clock(act)
        line(f"  {name}", [scale * clock(act)[1] for _ in range(options.repeats)])


def main() -> None:
    cuda = DEVICE.type == "cuda"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=50_000 if cuda else 2_048)
    parser.add_argument("--batch", type=int, default=512 if cuda else 128)
    parser.add_argument("--chunk", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=cuda)
    options = parser.parse_args()
    generator = torch.Generator(DEVICE).manual_seed(0)
    shape = (options.images, 3, 32, 32)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device=DEVICE, generator=generator)
    labels = torch.zeros(options.images, dtype=torch.int64, device=DEVICE)
    name = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    print(f"{name}, torch {torch.__version__}, {options.images} images, batch {options.batch}")
    epochs(options, images, labels)
    stages(options, images)


if __name__ == "__main__":
    main()
