"""Does Context Broadcasting help a ViT-Ti on CIFAR-100? Same recipe, same seeds, with and without.

    VITLAB_DATA=... python examples/cifar100_context_broadcasting.py --variants plain,cb --seeds 0,1,2,3,4 --out runs/cb

Writes one JSON file per variant with the metrics of every epoch and the attention entropy by layer of every seed; it is
updated after each run. The same command resumes. `--smoke` trains for one epoch on a few generated scenes instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import vitlab

PARTS = {"plain": "", "cb": "cb"}

#: Half a minute on a CPU, with nothing to download.
SMOKE = ["epochs=1", "batch_size=32", "compile=False", "precision=float32"]
SMOKE_DATA = "scenes(train=64, test=32)"


def main() -> None:
    """Train every variant with every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", default="plain,cb")
    parser.add_argument("--seeds", default="0,1,2,3,4", help="separated by commas")
    parser.add_argument("--out", type=Path, default=Path("runs/cifar100_context_broadcasting"))
    parser.add_argument("--data", default="cifar100")
    parser.add_argument("--set", action="append", default=[], help="a setting of the recipe, key=value")
    parser.add_argument("--smoke", action="store_true", help="one seed, one epoch, generated scenes")
    options = parser.parse_args()
    if options.smoke:
        options.data, options.seeds, options.set = SMOKE_DATA, "0", SMOKE + options.set
    elif options.data == "cifar100" and "VITLAB_DATA" not in os.environ:
        sys.exit("no data: set VITLAB_DATA to the folder of CIFAR-100, or try --smoke")
    for variant in options.variants.split(","):
        rows = []
        for seed in map(int, options.seeds.split(",")):
            rows.append(one_run(variant, seed, options.data, options.set, options.out / variant / f"seed-{seed}"))
            path = options.out / f"{variant}.json"
            path.write_text(json.dumps({"variant": variant, "settings": options.set, "runs": rows}, indent=1))
            print(f"{variant} seed {seed}: top-1 {rows[-1]['top1']:.2f}", flush=True)


def one_run(variant: str, seed: int, data: str, settings: list[str], folder: Path) -> dict[str, Any]:
    """Train one network and measure the entropy of its attention on test images."""
    recipe = f"vit_tiny_cifar100(part={PARTS[variant]!r})"
    last = vitlab.train(recipe, folder, settings=[f"data={data}", f"seed={seed}", *settings])
    model = vitlab.load(f"file/{folder}").eval()
    images = min(1000, int(last["test_images"]))
    entropy = vitlab.measure("attention_entropy", model, vitlab.batches_for(model, data, images, batch_size=250))
    return {
        "seed": seed,
        "top1": last["top1"],
        "metrics": [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()],
        "entropy": entropy.values["mean"].mean(1).tolist(),
        "class_row_entropy": entropy.values["class_row"].mean(1).tolist(),
    }


if __name__ == "__main__":
    main()
