"""What the instruments cost, as ratios to a plain forward pass over the same batches: A and B interleaved, medians and spread.

    python benchmarks/instruments.py [--device cuda] [--batch 32] [--repeats 7] [--json FILE]

Each row runs in the same process, turn by turn with the plain pass, so that whatever slows the machine slows both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import timm
import torch
from torch import Tensor, nn

from vitlab.core import plugins
from vitlab.instruments import measure, measure_together

ONE_PASS = ("attention_entropy", "attention_distance", "attention_diversity", "token_overfocus", "feature_fourier", "feature_variance")
TARGET = {"together": 2.0, "attention_stability": 2.4}  # stability: 1.2 times the two forwards that it needs


def main() -> None:
    """Print the table, and write it as JSON where asked."""
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    model = timm.create_model(options.model).to(options.device).eval()
    size = model.pretrained_cfg["input_size"][-2:]
    images = torch.randn(options.batch, 3, *size, generator=torch.Generator().manual_seed(0)).to(options.device)
    batches = [images] * options.batches
    rows = [ratio(name, run, model, batches, options) for name, run in subjects().items()]
    for row in rows:
        print(f"{row['name']:<24} {row['median']:6.3f} × forward   [{row['low']:.3f}, {row['high']:.3f}]   target {row['target']}")
    if options.json:
        about = {"model": options.model, "device": device_name(options.device), "batch": options.batch, "torch": torch.__version__}
        options.json.write_text(json.dumps({**about, "rows": rows}, indent=1))


def subjects() -> dict[str, Callable[[nn.Module, list[Tensor]], object]]:
    """What is timed: each instrument of one pass, all of them together, and stability."""
    there = [name for name in ONE_PASS if name in plugins.instruments()]
    runs: dict[str, Callable[[nn.Module, list[Tensor]], object]] = {
        name: lambda model, batches, name=name: measure(name, model, batches) for name in there
    }
    runs["together"] = lambda model, batches: measure_together(there, model, batches)
    if "attention_stability" in plugins.instruments():
            runs["attention_stability"] = lambda model, batches: measure("attention_stability", model, batches)
    return runs


def ratio(name: str, run: Callable[[nn.Module, list[Tensor]], object], model: nn.Module, batches: list[Tensor], options) -> dict:
    """Turn by turn: seconds of the instrument over seconds of the plain forward beside it."""
    found, plain = [], []
    for repeat in range(options.repeats + 1):
        beside = seconds(lambda: forward(model, batches), options.device)
        taken = seconds(lambda: run(model, batches), options.device)
        if repeat:  # the first turn warms up
            found.append(taken / beside)
            plain.append(beside)
    return {
        "name": name,
        "median": statistics.median(found),
        "low": min(found),
        "high": max(found),
        "forward_seconds": statistics.median(plain),
        "target": TARGET.get(name),
    }


@torch.no_grad()
def forward(model: nn.Module, batches: list[Tensor]) -> None:
    for images in batches:
        model(images)


def seconds(run: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else f"CPU, {torch.get_num_threads()} threads"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="deit_tiny_patch16_224")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.repeats < 5:
        parser.error("--repeats must be at least 5")
    return options


if __name__ == "__main__":
    main()
