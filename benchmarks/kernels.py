"""Fused operators: exactness, time of each kernel, and cost of parts, losses and instruments relative to plain models.

    python benchmarks/kernels.py [--rows exact,step,kernels,instruments,large] [--out FOLDER] [--smoke]

Every row compares A and B in turn in one process and reports the median ratio with its range. Rows are written to
`FOLDER/kernels.json` as they finish; a row that fails is reported with its error. Steps are forward + backward,
compiled, bf16, captured in a CUDA graph. `--prepare` only compiles the steps, so that several processes can fill the
caches of compiled code at the same time. `--smoke` runs everything at small sizes, on a CPU too.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import kernel_instruments
import kernel_rows
import timing
import torch
import torch.nn.functional as F
from torch import Tensor

import vitlab
from vitlab.kernels.availability import without_kernels
from vitlab.recording.diversification import record_diversification

#: name: part, loss of attention, goal, kernels that are disabled
STEPS: dict[str, tuple[str, str | None, float, tuple[str, ...]]] = {
    "TAP": ("TokenAwarePooling", None, 1.15, ()),
    "ADL": ("", "mean", 1.15, ()),
    "TAP without Triton": ("TokenAwarePooling", None, 1.15, ("token_pooling",)),
    "TAP + ADL": ("TokenAwarePooling", "mean", 1.28, ()),
    "ADL per head": ("", "each", 1.12, ()),
    "CB": ("ContextBroadcast", None, 1.02, ()),
    "ADL from maps": ("", "mean", 1.15, ("attention_diversity",)),
}


class Results:
    """Rows of results, written to a file after each row."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._path, self._end, self.rows = folder / "kernels.json", time.monotonic() + seconds, list[dict[str, Any]]()

    def add(self, group: str, name: str, make: Callable[[], dict[str, Any]]) -> None:
        """Compute and write one row, unless the time is over."""
        start = time.monotonic()
        if start > self._end:
            row: dict[str, Any] = {"skipped": "time is over"}
        else:
            try:
                row = make()
            except Exception as error:
                row = {"error": f"{type(error).__name__}: {error}"[:1500], "where": traceback.format_exc()[-2500:]}
        row = {"group": group, "name": name, **row, "took_seconds": round(time.monotonic() - start, 1)}
        self.rows.append(row)
        timing.write(str(self._path), {"rows": self.rows})
        shown = [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()]
        print(f"[{group}] {', '.join(shown[1:])}", flush=True)


# -- steps ----------------------------------------------------------------------------------------------------------


def make_step(options: argparse.Namespace, part: str, heads: str | None, stack: ExitStack) -> Callable[[], None]:
    """Returns a function that runs forward and backward of a model once."""
    device = options.device
    built = vitlab.load(options.model, seed=0)
    model = (vitlab.retrofit(built, part) if part else built).to(device).train()
    generator = torch.Generator(device).manual_seed(0)
    images = torch.randn(options.batch, 3, options.size, options.size, device=device, generator=generator)
    labels = torch.randint(0, 10, (options.batch,), device=device, generator=generator)
    tape = stack.enter_context(record_diversification(model, heads=heads)) if heads else None  # type: ignore[arg-type]

    def loss(images: Tensor, labels: Tensor) -> Tensor:
        if tape is not None:
            tape.clear()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            value = F.cross_entropy(model(images), labels)
            if tape is not None:
                value = value + tape.loss()
        if tape is not None:
            tape.clear()  # else values of layers are outputs of the compiled step
        return value

    forward = torch.compile(loss) if device == "cuda" or options.compile else loss

    def run() -> None:
        model.zero_grad(set_to_none=True)
        forward(images, labels).backward()

    return run


def prepared(options: argparse.Namespace, run: Callable[[], None]) -> tuple[Callable[[], object], float]:
    """Warm up a step and capture it in a CUDA graph; also returns the peak memory of a step in GiB."""
    run()
    if options.device != "cuda":
        return run, 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    peak = (torch.cuda.max_memory_allocated() - before) / 2**30
    return kernel_rows.captured(run), peak


def step_rows(options: argparse.Namespace, results: Results, chosen: list[str]) -> None:
    """The cost of parts and losses relative to the plain model."""
    plain: dict[str, Any] = {}

    def baseline() -> dict[str, Any]:
        plain["run"], plain["peak"] = prepared(options, make_step(options, "", None, ExitStack()))
        (seconds,) = timing.interleaved({"plain": plain["run"]}, 3, options.inner, options.device).values()
        return {"milliseconds": 1e3 * min(seconds), "peak_gib": plain["peak"]}

    def compared(part: str, heads: str | None, goal: float, disabled: tuple[str, ...]) -> dict[str, Any]:
        if not plain:
            return {"skipped": "the plain step failed"}
        with without_kernels(*disabled), ExitStack() as stack:
            run, peak = prepared(options, make_step(options, part, heads, stack))
            pair = {"plain": plain["run"], "changed": run}
            row = timing.ratios(timing.interleaved(pair, options.repeats, options.inner, options.device), "plain")
        memory = peak / plain["peak"] if plain["peak"] else None
        return {**row["changed"], "plain_seconds": row["plain"]["seconds"], "goal": goal, "memory_ratio": memory}

    if options.prepare:
        for name in ("plain", *chosen):
            part, heads, _, disabled = STEPS.get(name, ("", None, 1.0, ()))
            with without_kernels(*disabled), ExitStack() as stack:
                make_step(options, part, heads, stack)()
        return
    results.add("step", f"plain: {options.model}, batch {options.batch}", baseline)
    for name in chosen:
        results.add("step", name, partial(compared, *STEPS[name]))
        if options.device == "cuda":
            torch.cuda.empty_cache()


# -- all ------------------------------------------------------------------------------------------------------------


def main() -> None:
    options = parse()
    torch._dynamo.config.recompile_limit = 64
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(folder, options.seconds)
    groups = options.rows.split(",")
    steps = options.steps.split(",") if options.steps else list(STEPS)
    if "exact" in groups:
        for name, check in kernel_rows.exactness(options):
            results.add("exact", name, check)
    if "step" in groups:
        step_rows(options, results, steps)
    if "kernels" in groups:
        for name, measure in kernel_rows.kernel_times(options):
            results.add("kernels", name, measure)
    if "instruments" in groups:
        for name, measure in kernel_instruments.rows(options):
            results.add("instruments", name, measure)
    if "large" in groups:
        results.add("large", "statistics of a 2048-pixel image", partial(kernel_instruments.large, options))
    show(results.rows)


def show(rows: list[dict[str, Any]]) -> None:
    """Print the ratios as a table."""
    print(f"\n{'':44s}{'ms':>9s}{'ratio':>8s}   range             goal  memory")
    for row in rows:
        if "ratio" in row:
            span = f"{row['low']:.3f} to {row['high']:.3f}"
            memory = row.get("memory_ratio")
            cells = f"{1e3 * row['seconds']:9.2f}{row['ratio']:8.3f}   {span:16s}{row.get('goal') or '':>6}"
            print(f"{row['group'] + ': ' + row['name']:44s}{cells}{'' if memory is None else f'  {memory:.3f}'}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--rows", default="exact,step,kernels,instruments,large" if cuda else "exact,step,instruments")
    parser.add_argument("--steps", default="", help=f"of: {', '.join(STEPS)}")
    parser.add_argument("--model", default="timm/vit_small_patch16_224")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=256 if cuda else 4)
    parser.add_argument("--repeats", type=int, default=7 if cuda else 5)
    parser.add_argument("--inner", type=int, default=5 if cuda else 1)
    parser.add_argument("--seconds", type=float, default=235.0, help="no row starts later")
    parser.add_argument("--compile", action="store_true", help="also on a CPU")
    parser.add_argument("--prepare", action="store_true", help="only compile the steps")
    parser.add_argument("--out", default="runs/benchmarks")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    options.device = "cuda" if cuda else "cpu"
    if options.smoke:
        options.model = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, depth=2, embed_dim=64, num_heads=2)"
        options.size, options.batch = 32, 2
    return options


if __name__ == "__main__":
    main()
