"""Images per second of every corruption, vitlab against imagecorruptions-imaug, a package of the authors' code.

    PYTHONPATH=src python benchmarks/stress.py [--json PATH] [--images 16] [--repeats 5] [--threads 2] [--severity 3]
    PYTHONPATH=src python benchmarks/stress.py --device cuda      # does not need the reference package
    PYTHONPATH=src python benchmarks/stress.py --store-reference  # updates stress_reference.json

On a CPU, both process the same uint8 images alternately; the result is the median of the ratios of the rounds. On a GPU
(the default if available; override with `--device cpu`), the result is the ratio of the rates of vitlab, on images in
GPU memory, to the rates of the reference on one CPU core of another machine. These are stored in stress_reference.json
together with the processor and the package versions. With `--type float` vitlab gets the images as floats in [0, 1].
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import timing
import torch

from vitlab.corruptions import CORRUPTIONS, EXTRA, corrupt
from vitlab.data.scenes import draw_scenes

STORED = Path(__file__).with_name("stress_reference.json")
WARM_UPS = 3  # a GPU allocates memory and loads kernels in the first calls


def reference(name: str, severity: int, images: torch.Tensor) -> Callable[[], object]:
    """Returns a call of the authors' code on every image. The conversion to channels last is not timed."""
    import imagecorruptions

    arrays = list(images.permute(0, 2, 3, 1).contiguous().numpy())
    return lambda: [imagecorruptions.corrupt(array, severity, name) for array in arrays]


def measure(name: str, images: torch.Tensor, options: argparse.Namespace) -> dict[str, float]:
    """Returns the median rates, and the median and range of the ratio of vitlab's rate to the reference's."""
    pixels = images.to(options.device)
    pixels = pixels.float() / 255 if options.type == "float" else pixels
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: corrupt(pixels, name, options.severity, parameters="imagecorruptions")
    }
    if options.device == "cpu":
        runs["reference"] = reference(name, options.severity, images)
    for _ in range(WARM_UPS - 1):
        runs["ours"]()
    times = timing.interleaved(runs, options.repeats, device=options.device)
    ours = np.array(times["ours"]) / len(images)
    theirs = np.array(times["reference"]) / len(images) if "reference" in times else 1 / stored_rate(name, options)
    return {
        "ours": 1 / float(np.median(ours)),
        "reference": 1 / float(np.median(theirs)),
        "ratio": float(np.median(theirs / ours)),
        "low": float(np.min(theirs / ours)),
        "high": float(np.max(theirs / ours)),
    }


def stored_rate(name: str, options: argparse.Namespace) -> float:
    """Returns the images per second of the reference on one core; NaN for sizes and severities not measured."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    same = (stored["size"], stored["severity"]) == (options.size, options.severity)
    return float(stored["rates"][name]) if same else float("nan")


def store_reference(images: torch.Tensor, options: argparse.Namespace) -> None:
    """Write the reference's images per second of CPU time (median of the repeats), processor and package versions."""
    import cv2

    cv2.setNumThreads(1)
    rates = {}
    for name in CORRUPTIONS + EXTRA:
        call = reference(name, options.severity, images)
        call()
        spent = []
        for _ in range(options.repeats):
            start = time.process_time()
            call()
            spent.append(time.process_time() - start)
        rates[name] = round(len(images) / float(np.median(spent)), 1)
    packages = ("imagecorruptions-imaug", "numpy", "scipy", "scikit-image", "opencv-python", "pillow")
    record = {
        "what": "images a second of CPU time of imagecorruptions-imaug, one core",
        "chip": chip("cpu"),
        "versions": {package: version(package) for package in packages},
        "size": options.size,
        "severity": options.severity,
        "rates": rates,
    }
    STORED.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def chip(device: str) -> str:
    """Returns the name of the processor."""
    if device != "cpu":
        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def show(rows: dict[str, dict[str, float]], geometric_mean: float, options: argparse.Namespace) -> None:
    cross = "CROSS-MACHINE: the reference on one CPU core of another machine"
    same = "same machine, alternating" if options.device == "cpu" else cross
    print(f"{chip(options.device)}, {options.type}; {same}")
    print(f"{'corruption':18s} {'ours /s':>11s} {'reference /s':>13s} {'ratio':>8s}   range")
    for name, row in rows.items():
        print(
            f"{name:18s} {row['ours']:11.1f} {row['reference']:13.1f} {row['ratio']:7.1f}x"
            f"   {row['low']:.1f} to {row['high']:.1f}"
        )
    worst = min(rows, key=lambda name: rows[name]["ratio"])
    print(f"geometric mean {geometric_mean:.2f}x, minimum {rows[worst]['ratio']:.2f}x ({worst})")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--images", type=int, help="batch size; default 16, on a GPU 256")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--type", choices=("uint8", "float"), default="uint8", help="input dtype of vitlab")
    parser.add_argument("--only", nargs="*", choices=CORRUPTIONS + EXTRA, default=CORRUPTIONS + EXTRA)
    parser.add_argument("--store-reference", action="store_true", help="write stress_reference.json and exit")
    return parser.parse_args()


def main() -> None:
    options = parse()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    images = draw_scenes(options.images or (16 if options.device == "cpu" else 256), size=options.size).images
    if options.store_reference:
        store_reference(images, options)
        return
    rows = {name: measure(name, images, options) for name in options.only}
    geometric_mean = float(np.exp(np.mean([np.log(row["ratio"]) for row in rows.values()])))
    show(rows, geometric_mean, options)
    if options.json:
        record = {
            "settings": {key: str(value) for key, value in vars(options).items() if key not in ("json", "only")},
            "torch": torch.__version__,
            "chip": chip(options.device),
            "cross_machine": options.device != "cpu",
            "geometric_mean": geometric_mean,
            "rows": rows,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
