"""Time from the start of a command to its first progress and to its first result.

Each command runs in a terminal. Times are seconds since the start of the process: until any output, until each of the
first steps is reported, until the first result is printed, and until the process ends.

    python benchmarks/start.py [--commands measure,stress] [--repeats 3] [--json PATH]
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import timing

MODEL = "timm/deit_tiny_patch16_224(num_classes=25)"  # as many outputs as scenes have classes
COMMANDS = {
    "measure": ["measure", MODEL, "--with", "attention_entropy", "--data", "scenes"],
    "stress": ["stress", MODEL, "--with", "occlusion", "--data", "scenes"],
}
STEPS = ("importing torch", "loading the model", "drawing images")


def time_events(command: Sequence[str]) -> dict[str, float]:
    """Run a command; returns the seconds until each event."""
    reader, writer = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, env=environment)
    os.close(writer)
    assert process.stdout is not None
    output = process.stdout.fileno()
    events: dict[str, float] = {}
    shown, open_sources = b"", {reader, output}
    while open_sources:
        for source in select.select(list(open_sources), [], [])[0]:
            now, block = time.perf_counter() - start, _read(source)
            if not block:
                open_sources.discard(source)
            elif source == output:
                events.setdefault("first result", now)
            else:
                shown += block
                events.setdefault("first progress", now)
                for step in STEPS:
                    if step.encode() in shown:
                        events.setdefault(step, now)
    if process.wait():
        raise SystemExit(f"{' '.join(command)} failed:\n{shown.decode()}")
    os.close(reader)
    process.stdout.close()
    return {**events, "end": time.perf_counter() - start}


def _read(source: int) -> bytes:
    try:
        return os.read(source, 65536)
    except OSError:  # the other end of the terminal is closed
        return b""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    names = options.commands.split(",")
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    load = os.getloadavg()[0]
    for _ in range(options.repeats):
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                runs[name].append(time_events([sys.executable, "-m", "vitlab", *COMMANDS[name], "--out", folder]))
    table: dict[str, dict[str, Any]] = {}
    for name, rows in runs.items():
        events = sorted(rows[0], key=lambda event: rows[0][event])
        table[name] = {event: [row[event] for row in rows] for event in events}
        print(f"\nvitlab {' '.join(COMMANDS[name])}")
        for event, seconds in table[name].items():
            print(f"{event:20s}{statistics.median(seconds):8.2f} s   {min(seconds):.2f} to {max(seconds):.2f}")
    print(f"\n{os.cpu_count()} cores, {load:.1f} processes running on average in the previous minute")
    timing.write(options.json, {"cores": os.cpu_count(), "load": load, "seconds": table})


if __name__ == "__main__":
    main()
