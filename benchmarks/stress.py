"""Images a second of every corruption, ours against imagecorruptions-imaug, the authors' code as packaged.

    PYTHONPATH=src python benchmarks/stress.py [--json PATH] [--images 16] [--repeats 5] [--threads 2] [--severity 3]

On a CPU: the same images through both, interleaved, and the ratio of the medians. On a GPU (chosen where there is one;
`--device cpu` overrides): our rates, and their ratio to `STORED`, the reference's rate on one core of another machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from vitlab.corruptions import CORRUPTIONS, EXTRA, corrupt

#: Images a second of the reference, 224×224 at severity 3, one core of an AMD EPYC, by CPU time.
STORED: dict[str, float] = {
    "gaussian_noise": 214.7,
    "shot_noise": 95.8,
    "impulse_noise": 329.1,
    "defocus_blur": 445.2,
    "glass_blur": 104.7,
    "motion_blur": 182.2,
    "zoom_blur": 16.6,
    "snow": 143.2,
    "frost": 185.4,
    "fog": 576.0,
    "brightness": 52.6,
    "contrast": 599.3,
    "elastic_transform": 85.4,
    "pixelate": 3344.1,
    "jpeg_compression": 2708.9,
    "speckle_noise": 318.0,
    "gaussian_blur": 378.7,
    "spatter": 188.5,
    "saturate": 52.5,
}


def scenes(count: int, size: int) -> torch.Tensor:
    """(count, 3, size, size) uint8: the embedded pictures, so that nothing needs to be downloaded."""
    from vitlab.data.scenes import draw_scenes

    return draw_scenes(count, size=size).images


def seconds(call: Callable[[], object], device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def reference(name: str, severity: int, images: torch.Tensor) -> Callable[[], object]:
    import imagecorruptions

    arrays = list(images.permute(0, 2, 3, 1).contiguous().numpy())
    return lambda: [imagecorruptions.corrupt(array, severity, name) for array in arrays]


def measure(name: str, images: torch.Tensor, options: argparse.Namespace) -> dict[str, float]:
    """Median rates and their spread (half of the interquartile range over the median)."""
    pixels = images.to(options.device).float() / 255
    calls: dict[str, Callable[[], object]] = {"ours": lambda: corrupt(pixels, name, options.severity)}
    if options.device == "cpu":
        calls["reference"] = reference(name, options.severity, images)
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(options.repeats):
        for who, call in calls.items():
            times[who].append(seconds(call, options.device))
    row = {}
    for who, all_times in times.items():
        low, middle, high = np.quantile(all_times, [0.25, 0.5, 0.75])
        row[who], row[f"{who}_spread"] = len(images) / middle, (high - low) / (2 * middle)
    against = row.get("reference", STORED.get(name, float("nan")))
    return {**row, "ratio": row["ours"] / against}


def core_rates(images: torch.Tensor, severity: int) -> dict[str, float]:
    """The reference's images a second of CPU time, for `STORED`."""
    rates = {}
    for name in CORRUPTIONS + EXTRA:
        call = reference(name, severity, images)
        call()
        spent = []
        for _ in range(5):
            start = time.process_time()
            call()
            spent.append(time.process_time() - start)
        rates[name] = round(len(images) / statistics.median(spent), 1)
    return rates


def show(rows: dict[str, dict[str, float]], geometric_mean: float, options: argparse.Namespace) -> None:
    cpu = options.device == "cpu"
    print("same machine, interleaved" if cpu else "CROSS-MACHINE: our GPU against a stored rate of one CPU core")
    print(f"{'corruption':18s} {'ours /s':>11s} {'±':>5s} {'reference /s':>13s} {'±':>5s} {'ratio':>8s}")
    for name, row in rows.items():
        rate, spread = row.get("reference", STORED.get(name, float("nan"))), row.get("reference_spread", 0.0)
        print(
            f"{name:18s} {row['ours']:11.1f} {row['ours_spread']:5.0%} {rate:13.1f} {spread:5.0%} {row['ratio']:7.1f}x"
        )
    worst = min(rows, key=lambda name: rows[name]["ratio"])
    print(f"geometric mean {geometric_mean:.1f}x, least {rows[worst]['ratio']:.1f}x ({worst})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--images", type=int, help="in a batch: 16, or 256 on a GPU")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="*", default=CORRUPTIONS + EXTRA)
    parser.add_argument("--core-rates", action="store_true", help="print the table for STORED and stop")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    images = scenes(options.images or (16 if options.device == "cpu" else 256), options.size)
    if options.core_rates:
        print(json.dumps(core_rates(images, options.severity), indent=4))
        return
    rows = {name: measure(name, images, options) for name in options.only}
    geometric_mean = float(np.exp(np.mean([np.log(row["ratio"]) for row in rows.values()])))
    show(rows, geometric_mean, options)
    if options.json:
        settings = {key: str(value) for key, value in vars(options).items() if key != "json"}
        chip = torch.cuda.get_device_name() if options.device != "cpu" else platform.processor()
        record = {
            "settings": settings,
            "torch": torch.__version__,
            "chip": chip,
            "cross_machine": options.device != "cpu",
            "geometric_mean": geometric_mean,
            "rows": rows,
        }
        options.json.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
