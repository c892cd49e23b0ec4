"""Timing for benchmarks: interleaved runs, repeated; medians and ranges as ratios."""

from __future__ import annotations

import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch


def interleaved(
    runs: Mapping[str, Callable[[], Any]], repeats: int = 5, inner: int = 1, device: str = "cpu", warm: bool = False
) -> dict[str, list[float]]:
    """Returns the seconds of each run, interleaved `repeats` times, after one warm-up call unless `warm`.

    Garbage collection is disabled during timing.
    """
    for run in () if warm else runs.values():
        run()
    _wait(device)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, run in runs.items():
                start = time.perf_counter()
                for _ in range(inner):
                    run()
                _wait(device)
                seconds[name].append((time.perf_counter() - start) / inner)
    finally:
        if collecting:
            gc.enable()
    return seconds


def ratios(seconds: Mapping[str, list[float]], baseline: str) -> dict[str, dict[str, float]]:
    """Returns the median seconds of each run, and the median and range of its ratio to the baseline, by round."""
    table = {}
    for name, values in seconds.items():
        each = sorted(value / base for value, base in zip(values, seconds[baseline], strict=True))
        table[name] = {
            "seconds": statistics.median(values),
            "ratio": statistics.median(each),
            "low": each[0],
            "high": each[-1],
        }
    return table


def show(title: str, table: Mapping[str, Mapping[str, float]]) -> None:
    """Print a table of ratios."""
    print(f"\n{title}")
    print(f"{'':36s}{'ms':>10s}{'ratio':>9s}   range")
    for name, row in table.items():
        print(f"{name:36s}{1e3 * row['seconds']:10.2f}{row['ratio']:9.3f}   {row['low']:.3f} to {row['high']:.3f}")


def write(path: str, result: Mapping[str, Any]) -> None:
    """Write results as JSON, with the torch version, device and threads."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    about = {"torch": torch.__version__, "device": device, "threads": torch.get_num_threads()}
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps({**about, **result}, indent=1) + "\n", encoding="utf-8")


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
