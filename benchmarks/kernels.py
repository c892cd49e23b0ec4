"""Fused operators: exactness, time of each kernel, and cost of parts, losses and instruments relative to plain models.

    python benchmarks/kernels.py [--rows exact,step,kernels,instruments,large,loop] [--out FOLDER] [--smoke]

Every row compares A and B in turn in one process and reports the median ratio with its range. Rows are written to
`FOLDER/kernels.json` as they finish; a row that fails is reported with its error. Steps are forward + backward,
compiled, bf16, captured in a CUDA graph. On a GPU other processes compile all steps first, several at a time, and fill
the caches of compiled code; this process checks exactness meanwhile. These rows take less than ten minutes on one H200.
Swin takes longer to compile and has a command of its own: `--rows step --models "Swin-Ti,Swin-Ti (fused attention)"
--compile-seconds 400`.
`--smoke` runs every row at small sizes; on a CPU the kernels themselves run in Triton's interpreter.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

if "--smoke" in sys.argv and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported

import kernel_instruments
import kernel_rows
import timing
import torch.nn.functional as F
from timm.layers import set_fused_attn
from torch import Tensor

import training
import vitlab
from vitlab.kernels import availability
from vitlab.kernels.availability import without_kernels
from vitlab.recording.diversification import record_diversification

#: name: part, loss of attention, goal, kernels that are disabled
STEPS: dict[str, tuple[str, str | None, float, tuple[str, ...]]] = {
    "TAP": ("TokenAwarePooling", None, 1.15, ()),
    "ADL": ("", "mean", 1.15, ()),
    "ADL per head": ("", "each", 1.12, ()),
    "TAP + ADL": ("TokenAwarePooling", "mean", 1.28, ()),
    "CB": ("ContextBroadcast", None, 1.02, ()),
    "TAP without Triton": ("TokenAwarePooling", None, 1.15, ("token_pooling",)),
    "ADL from maps": ("", "mean", 1.15, ("attention_diversity",)),
}
#: name: expression, that for `--smoke`, steps
MODELS: dict[str, tuple[str, str, list[str]]] = {
    "ViT-S/16": (
        "timm/vit_small_patch16_224",
        "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, depth=2, embed_dim=64, num_heads=2)",
        list(STEPS),
    ),
    "ViT-B/16": (
        "timm/vit_base_patch16_224",
        "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, depth=1, embed_dim=64, num_heads=1)",
        list(STEPS)[:5],
    ),
    "Swin-Ti": (
        "timm/swin_tiny_patch4_window7_224",
        "timm/swin_tiny_patch4_window7_224(img_size=32, window_size=4, depths=[2, 2], embed_dim=32, num_heads=[1, 2])",
        list(STEPS)[:5],
    ),
}
#: Swin with timm's experimental fused attention: ADL gets queries, keys and the trained bias instead of maps
FUSED_SWIN = "Swin-Ti (fused attention)"
MODELS[FUSED_SWIN] = (*MODELS["Swin-Ti"][:2], ["ADL", "ADL per head", "TAP + ADL"])
#: variant of the training loop: goal, in images per second or relative to the plain one
LOOP = {"plain": 80_000, "tap_adl": 0.85}
_COMPILING = 9  # processes that compile at the same time: each holds a model and a batch on the GPU


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
        if availability._FAILURES:  # from then on, rows of these operators are those of the plain forms
            row["triton_failed"] = dict(availability._FAILURES)
        row = {"group": group, "name": name, **row, "took_seconds": round(time.monotonic() - start, 1)}
        self.rows.append(row)
        timing.write(str(self._path), {"command": " ".join(sys.argv), "rows": self.rows})
        shown = [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()]
        print(f"[{group}] {', '.join(shown[1:])}", flush=True)


# -- steps ----------------------------------------------------------------------------------------------------------


def expression_of(options: argparse.Namespace, model: str) -> str:
    """The model expression of a name in `MODELS`."""
    return MODELS[model][1 if options.smoke else 0]


def make_step(
    options: argparse.Namespace, model_name: str, part: str, heads: str | None, stack: ExitStack
) -> Callable[[], None]:
    """Returns a function that runs forward and backward of a model once."""
    device = options.device
    set_fused_attn(enable=True, experimental=model_name == FUSED_SWIN)
    built = vitlab.load(expression_of(options, model_name), seed=0)
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


def step_rows(options: argparse.Namespace, results: Results, model: str) -> None:
    """The cost of parts and losses relative to the plain model."""
    plain: dict[str, Any] = {}

    def baseline() -> dict[str, Any]:
        plain["run"], plain["peak"] = prepared(options, make_step(options, model, "", None, ExitStack()))
        (seconds,) = timing.interleaved({"plain": plain["run"]}, 3, options.inner, options.device).values()
        return {"milliseconds": 1e3 * min(seconds), "peak_gib": plain["peak"]}

    def compared(part: str, heads: str | None, goal: float, disabled: tuple[str, ...]) -> dict[str, Any]:
        if not plain:
            return {"skipped": "the plain step failed"}
        with without_kernels(*disabled), ExitStack() as stack:
            run, peak = prepared(options, make_step(options, model, part, heads, stack))
            pair = {"plain": plain["run"], "changed": run}
            row = timing.ratios(timing.interleaved(pair, options.repeats, options.inner, options.device), "plain")
        memory = peak / plain["peak"] if plain["peak"] else None
        return {**row["changed"], "plain_seconds": row["plain"]["seconds"], "goal": goal, "memory_ratio": memory}

    results.add("step", f"{model}: plain, {expression_of(options, model)}, batch {options.batch}", baseline)
    for name in steps_of(options, model):
        results.add("step", f"{model}: {name}", partial(compared, *STEPS[name]))
        if options.device == "cuda":
            torch.cuda.empty_cache()


def steps_of(options: argparse.Namespace, model: str) -> list[str]:
    """The chosen steps of a model."""
    chosen = options.steps.split(",") if options.steps else list(STEPS)
    return [name for name in MODELS[model][2] if name in chosen]


def compile_only(options: argparse.Namespace) -> None:
    """Compile the steps of `--prepare`, so that their code is in the caches."""
    if options.prepare.startswith("loop "):
        loop_row(options, options.prepare.removeprefix("loop "), epochs=2, seconds=0.1)
        return
    for model in options.models.split(","):
        part, heads, _, disabled = STEPS.get(options.prepare, ("", None, 1.0, ()))
        with without_kernels(*disabled), ExitStack() as stack:
            make_step(options, model, part, heads, stack)()


def compiling(options: argparse.Namespace, folder: Path, pool: ThreadPoolExecutor) -> None:
    """Start the processes that compile all chosen steps; `FOLDER/compile.log` has what they print."""
    flags = [f"--{name}" for name in ("smoke", "compile") if vars(options)[name]]
    own = [sys.executable, __file__, "--batch", str(options.batch), *flags]
    models = options.models.split(",")
    commands = [
        [*own, "--models", model, "--prepare", step]
        for model in models
        for step in ("plain", *steps_of(options, model))
    ]
    if "loop" in options.rows.split(","):
        commands[:0] = [[*own, "--models", models[0], "--prepare", f"loop {variant}"] for variant in LOOP]
    end = time.monotonic() + options.compile_seconds

    def run(command: list[str]) -> None:
        start = time.monotonic()
        with (folder / "compile.log").open("a", encoding="utf-8") as log:
            try:
                code = subprocess.run(command, stdout=log, stderr=log, timeout=max(1.0, end - start)).returncode
            except subprocess.TimeoutExpired:
                code = -1
        took = time.monotonic() - start
        print(f"[compile] {command[-3]}: {command[-1]}, exit {code}, took_seconds {took:.0f}", flush=True)

    for command in commands:
        pool.submit(run, command)


# -- the training loop ----------------------------------------------------------------------------------------------


def loop_row(options: argparse.Namespace, variant: str, epochs: int = 6, seconds: float = 3.0) -> dict[str, Any]:
    """Images per second of the training loop of ViT-Ti (4×4 patches, 32×32)."""
    small = options.smoke or options.device != "cuda"
    given = argparse.Namespace(
        images=16 if small else 50_000, epochs=2 if small else epochs, seconds=0.1 if small else seconds
    )
    return training.row(given, torch.device(options.device), "tiny", 8 if small else 512, variant)


def loop_rows(options: argparse.Namespace, results: Results) -> None:
    """The training loop, plain and with parts and losses."""
    rates = dict[str, float]()

    def images_per_second(variant: str) -> dict[str, Any]:
        found = loop_row(options, variant)
        rates[variant] = found["whole"]
        row = {"images_per_second": found["whole"], "bare": found["bare"], "epochs": found["epochs"]}
        relative = {} if variant == "plain" else {"relative_to_plain": found["whole"] / rates["plain"]}
        return {**row, **relative, "goal": LOOP[variant]}

    for variant in LOOP:
        results.add("loop", f"ViT-Ti, {variant}, images/s", partial(images_per_second, variant))


# -- all ------------------------------------------------------------------------------------------------------------


def main() -> None:
    options = parse()
    torch._dynamo.config.recompile_limit = 64
    if options.prepare:
        compile_only(options)
        return
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(folder, options.seconds)
    groups, models = options.rows.split(","), options.models.split(",")
    with ThreadPoolExecutor(_COMPILING) as pool:
        if "step" in groups and (options.device == "cuda" or options.compile):
            compiling(options, folder, pool)
        if "exact" in groups:
            for name, check in kernel_rows.exactness(options):
                results.add("exact", name, check)
    if "step" in groups:
        step_rows(options, results, models[0])
    if "loop" in groups:
        loop_rows(options, results)
    if "kernels" in groups:
        for name, measure in kernel_rows.kernel_times(options):
            results.add("kernels", name, measure)
    if "large" in groups:
        results.add("large", "statistics of a 2048-pixel image", partial(kernel_instruments.large, options))
    if "instruments" in groups:
        for name, measure in kernel_instruments.rows(options):
            results.add("instruments", name, measure)
    if "step" in groups:
        for model in models[1:]:
            step_rows(options, results, model)
    show(results.rows)


def show(rows: list[dict[str, Any]]) -> None:
    """Print all results as tables."""
    print(f"\n{'':58s}{'ms':>9s}{'ratio':>8s}   range             goal  memory, MiB beyond a forward")
    for row in rows:
        if "ratio" in row:
            span = f"{row['low']:.3f} to {row['high']:.3f}"
            cells = f"{1e3 * row['seconds']:9.2f}{row['ratio']:8.3f}   {span:16s}{row.get('goal') or '':>6}"
            memory, beyond = row.get("memory_ratio"), row.get("mib_beyond_a_forward")
            shown = f"  {memory:.3f}" if memory is not None else f"  {beyond:.1f} MiB" if beyond is not None else ""
            part = f" ({row['of_one_layers_maps']:.2%} of a layer's maps)" if "of_one_layers_maps" in row else ""
            print(f"{row['group'] + ': ' + row['name']:58s}{cells}{shown}{part}")
    ceilings = {unit: max((row.get(unit, 0.0) for row in rows), default=0.0) for unit in kernel_rows.UNITS}
    print(f"\n{'':66s}{'µs':>9s}   rate (share of the highest in this run)")
    for row in rows:
        if "microseconds" in row:
            rate = [
                f"{row[u]:.4g} {name} ({row[u] / ceilings[u]:.0%})" for u, name in kernel_rows.UNITS.items() if u in row
            ]
            print(f"{row['name']:66s}{row['microseconds']:9.1f}   {', '.join(rate)}")
    print()
    for row in rows:
        if "images_per_second" in row:
            relative = f", {row['relative_to_plain']:.3f} of plain" if "relative_to_plain" in row else ""
            print(f"{row['name']}: {row['images_per_second']:.0f} images/s{relative}; goal {row['goal']}")
        wrong = next((row[key] for key in ("error", "skipped", "triton_failed") if key in row), "")
        if wrong or row.get("passed") is False:
            print(f"NOT MEASURED OR WRONG: {row['group']}: {row['name']}: {wrong or row}")
    checks = [row["passed"] for row in rows if "passed" in row]
    print(f"exact: {sum(checks)} of {len(checks)} checks passed")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--rows", default="exact,step,loop,kernels,large,instruments")
    parser.add_argument("--steps", default="", help=f"of: {', '.join(STEPS)}")
    models = MODELS if "--smoke" in sys.argv else ["ViT-S/16", "ViT-B/16"] if cuda else ["ViT-S/16"]
    parser.add_argument("--models", default=",".join(models))
    parser.add_argument("--batch", type=int, default=256 if cuda else 4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--inner", type=int, default=3 if cuda else 1)
    parser.add_argument("--seconds", type=float, default=540.0 if cuda else float("inf"), help="no row starts later")
    parser.add_argument("--compile-seconds", type=float, default=240.0, help="limit of the processes that compile")
    parser.add_argument("--prepare", default="", help="only compile this step, or `plain`")
    parser.add_argument("--compile", action="store_true", help="also on a CPU")
    parser.add_argument("--out", default="runs/benchmarks")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    options.device = "cuda" if cuda else "cpu"
    options.size = 32 if options.smoke else 224
    options.batch = 2 if options.smoke else options.batch
    return options


if __name__ == "__main__":
    main()
