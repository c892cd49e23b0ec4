"""Where the time of a captured training step goes: microseconds per step of each GPU kernel.

    python benchmarks/step_profile.py loop plain [--set coordinate_descent_tuning=True] [--json PATH]
    python benchmarks/step_profile.py "ViT-S/16" "TAP + ADL"

`loop` is the step of ViT-Ti (4×4 patches, 32×32, batch 512) with a variant of `benchmarks/training.py`, optimiser
included; the other names are models and steps of `benchmarks/kernels.py`. `--set` changes settings of Inductor.
`--lock FILE`: several processes compile at the same time, and take turns on the GPU.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import timing
import torch
import torch._inductor.config as inductor
from torch.profiler import ProfilerActivity, profile

import kernels
import training
from vitlab import zoo
from vitlab.data.resident import TrainingBatch
from vitlab.training.state import make_state
from vitlab.training.step import capture, make_step


def loop_step(variant: str, stack: ExitStack, batch_size: int) -> tuple[Callable[[], object], int]:
    """The captured step of the training loop, and its number of images."""
    parts, weight = training.VARIANTS[variant]
    recipe = replace(training.RECIPES["tiny"](), batch_size=batch_size, augment=training.FULL)
    objective = replace(recipe.objective, diversification=weight)
    recipe = replace(recipe, model=recipe.model + parts, objective=objective)
    model = zoo.load(recipe.model, seed=0).cuda().train()
    loss = stack.enter_context(training.loss_of(recipe, model))
    state = make_state(recipe, model, torch.device("cuda"))
    images = torch.randn(batch_size, 3, 32, 32, device="cuda", dtype=torch.bfloat16)
    labels = torch.randint(0, 100, (batch_size,), device="cuda")
    batch = TrainingBatch(images, labels, labels.flip(0), torch.rand(batch_size, device="cuda"))
    step = make_step(recipe, model, loss, state)
    step(batch)  # compiles
    captured = capture(step, batch, state.changing)
    return lambda: captured(batch), batch_size


def model_step(model: str, name: str, stack: ExitStack, batch_size: int) -> tuple[Callable[[], object], int]:
    """The captured step of a row of `benchmarks/kernels.py`, and its number of images."""
    options = argparse.Namespace(smoke=False, device="cuda", batch=batch_size, size=224, compile=True)
    part, heads, _, disabled = kernels.STEPS.get(name, ("", None, 1.0, ()))
    stack.enter_context(kernels.without_kernels(*disabled))
    run, _ = kernels.prepared(options, kernels.make_step(options, model, part, heads, stack))
    return run, batch_size


@contextmanager
def turn(path: str) -> Iterator[None]:
    """Wait for the lock file, if there is one."""
    if not path:
        yield
        return
    with Path(path).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def seconds_of(run: Callable[[], object], rounds: int = 7, inner: int = 20) -> float:
    """The median time of a call."""
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(inner):
            run()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start) / inner)
    return statistics.median(found[1:])


def kernel_times(run: Callable[[], object], steps: int = 5) -> list[dict[str, Any]]:
    """Microseconds and launches per step of each kernel, longest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        for _ in range(steps):
            run()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = defaultdict(list)
    for event in traced.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found[event.name].append(event.device_time)
    rows = [
        {"kernel": name, "microseconds": sum(each) / steps, "launches": len(each) / steps}
        for name, each in found.items()
    ]
    return sorted(rows, key=lambda row: -row["microseconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help=f"loop, or of: {', '.join(kernels.MODELS)}")
    parser.add_argument("step", help="a variant of training.py, or a step of kernels.py")
    parser.add_argument("--set", action="append", default=[], help="a setting of torch._inductor.config, name=value")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--lock", default="")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    torch._dynamo.config.recompile_limit = 64
    settings = [text.partition("=") for text in options.set]
    with ExitStack() as stack:
        stack.enter_context(inductor.patch({name: ast.literal_eval(value) for name, _, value in settings}))
        if options.model == "loop":
            run, images = loop_step(options.step, stack, options.batch or 512)
        else:
            run, images = model_step(options.model, options.step, stack, options.batch or 256)
        with turn(options.lock):
            seconds = seconds_of(run)
            rows = kernel_times(run)
    total = sum(row["microseconds"] for row in rows)
    print(f"\n{options.model} {options.step} {options.set}: {1e3 * seconds:.3f} ms, {images / seconds:,.0f} images/s,")
    print(f"kernels {total / 1e3:.3f} ms, {sum(row['launches'] for row in rows):.0f} launches", flush=True)
    for row in rows[: options.rows]:
        print(f"{row['microseconds']:9.1f} µs {row['launches']:6.1f} × {row['kernel'][:110]}")
    about = {"model": options.model, "step": options.step, "set": options.set}
    timing.write(options.json, {**about, "seconds": seconds, "images_per_second": images / seconds, "kernels": rows})


if __name__ == "__main__":
    main()
