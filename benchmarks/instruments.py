"""Time of instruments as ratios to a forward pass over the same batches, interleaved in one run.

    python benchmarks/instruments.py [--model deit_tiny_patch16_224] [--batch 32] [--batches 8] [--json PATH]

Targets: `together` 2.0; `attention_stability` and `lesion` 1.2 times the forwards that they need (two; one and one for
each unit); additional memory at most one layer's maps, measured on CUDA. The ratios include `describe`, a forward
pass over two blank images per measurement, which matters less with more --batches.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import timing
import timm
import torch

from vitlab.instruments import measure, measure_together

ONE_PASS = (
    "attention_entropy",
    "attention_distance",
    "attention_diversity",
    "token_overfocus",
    "feature_fourier",
    "feature_variance",
)


def main() -> None:
    options = parse()
    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    if options.threads:
        torch.set_num_threads(options.threads)
    model = timm.create_model(options.model).to(device).eval()
    mean, std = (torch.tensor(model.pretrained_cfg[name])[:, None, None] for name in ("mean", "std"))
    pixels = torch.rand(options.batch, *model.pretrained_cfg["input_size"], generator=torch.Generator().manual_seed(0))
    images = ((pixels - mean) / std).to(device)
    batches = [images] * options.batches
    labelled = [(images, torch.zeros(options.batch, dtype=torch.long, device=device))] * max(1, options.batches // 4)

    def forwards(count: int = 1, over: int = options.batches) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                for _ in range(count * over):
                    model(images)

        return run

    def one(name: str) -> Callable[[], object]:
        return lambda: measure(name, model, batches)

    runs: dict[str, Callable[[], object]] = {"forward": forwards(), **{name: one(name) for name in ONE_PASS}}
    runs["together"] = lambda: measure_together(ONE_PASS, model, batches)
    table = timing.ratios(timing.interleaved(runs, options.repeats, device=device), "forward")
    size = f"{options.batches} batches of {options.batch}"
    timing.show(f"{options.model}, {size}, {device}; together: {', '.join(ONE_PASS)}", table)

    units = len(measure("lesion", model, labelled).axes["unit"])
    pairs = {
        "attention_stability": (forwards(2), one("attention_stability")),
        "lesion": (forwards(1 + units, len(labelled)), lambda: measure("lesion", model, labelled)),
    }
    needed = {}
    for name, (plain, measured) in pairs.items():
        both = timing.interleaved({"its forwards": plain, name: measured}, options.repeats, device=device)
        needed |= {name: timing.ratios(both, "its forwards")[name]}
    timing.show("relative to the forwards that they need", needed)
    memory = memory_beyond_a_forward(runs) if device == "cuda" else {}
    found = {"model": options.model, "size": size, "together": ONE_PASS, "table": table, "needed": needed}
    timing.write(options.json, {**found, "memory": memory})


def memory_beyond_a_forward(runs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Returns the peak MiB of each run, less that of the forward pass."""
    peaks = {}
    for name, run in runs.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        run()
        peaks[name] = torch.cuda.max_memory_allocated() / 2**20
    beyond = {name: peak - peaks["forward"] for name, peak in peaks.items()}
    print("\nMiB beyond a forward:", ", ".join(f"{name} {mib:.0f}" for name, mib in beyond.items()))
    return beyond


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="deit_tiny_patch16_224")
    parser.add_argument("--batch", type=int, default=256 if torch.cuda.is_available() else 32)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    if options.repeats < 5:
        parser.error("--repeats must be at least 5")
    return options


if __name__ == "__main__":
    main()
