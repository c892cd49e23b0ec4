"""What instruments cost, as ratios to a plain forward pass over the same batches, interleaved in one run.

    python benchmarks/instruments.py [--model deit_tiny_patch16_224] [--batch 32] [--batches 4] [--json PATH]

The target for `together` is 2.0, for `attention_stability` 2.4: 1.2 times the two forwards that it needs. The price of
`describe`, a forward over two blank images for every measurement, is in the ratios and falls with --batches.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import timing
import timm
import torch

from vitlab.core import plugins
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
    batches = [((pixels - mean) / std).to(device)] * options.batches

    def forward() -> None:
        with torch.no_grad():
            for images in batches:
                model(images)

    def one(name: str) -> Callable[[], object]:
        return lambda: measure(name, model, batches)

    there = [name for name in ONE_PASS if name in plugins.instruments()]
    runs: dict[str, Callable[[], object]] = {"forward": forward, **{name: one(name) for name in there}}
    runs["together"] = lambda: measure_together(there, model, batches)
    runs["attention_stability"] = one("attention_stability")
    table = timing.ratios(timing.interleaved(runs, options.repeats, device=device), "forward")
    size = f"{options.batches} batches of {options.batch}"
    timing.show(f"{options.model}, {size}, {device}; together: {', '.join(there)}", table)
    timing.write(options.json, {"model": options.model, "size": size, "together": there, "table": table})


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="deit_tiny_patch16_224")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches", type=int, default=4)
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
