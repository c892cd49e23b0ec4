"""Put a pretrained DeiT-Ti under every stress test that needs only clean images, and print the tables.

    VITLAB_DATA=... python examples/stress_deit_tiny.py --images 1000 --device cuda --out runs/stress_deit_tiny

Needs the weights as `deit_tiny_patch16_224.safetensors` and an ImageNet folder below VITLAB_DATA. Stopped, it goes on
with the next corruption. `--smoke` takes a tiny random model and embedded scenes instead, which shows that it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import vitlab
from vitlab import zoo
from vitlab.core.ledger import ledger
from vitlab.core.measurement import Measurement
from vitlab.laboratory import batches_for

#: What is run, with its settings: epsilons in 1/255.
TESTS: dict[str, dict[str, Any]] = {
    "corruptions": {},
    "occlusion": {},
    "patch_shuffle": {},
    "adversarial": {"epsilons": (0.5, 1.0, 2.0, 4.0)},
    "frequency_noise": {},
}

SMOKE = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=48, depth=2, num_classes=25)"
SMOKE_DATA = "scenes(train=1, test=16)"
SMOKE_TESTS = {**TESTS, "corruptions": {"names": ("gaussian_noise", "fog"), "severities": (1, 5)}}


def main() -> None:
    """Run one test after the other, and store each as it is ready."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("runs/stress_deit_tiny"))
    parser.add_argument("--data", default="imagenet(full=False)")
    parser.add_argument("--weights", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tests", default=",".join(TESTS))
    parser.add_argument("--smoke", action="store_true", help="a tiny random model on 16 embedded scenes")
    options = parser.parse_args()
    subject, settings = ("tiny ViT", SMOKE_TESTS) if options.smoke else ("DeiT-Ti", TESTS)
    if options.smoke:
        options.data, options.images = SMOKE_DATA, 16
    model = zoo.load(SMOKE if options.smoke else deit_tiny(options.weights), seed=0).eval().to(options.device)
    batches = batches_for(model, options.data, options.images, batch_size=100)
    batches = replace(batches, items=[(x.to(options.device), y.to(options.device)) for x, y in batches])
    for name in options.tests.split(","):
        start = time.monotonic()
        with ledger(options.out / "steps" / name):
            found = vitlab.stress(name, model, batches, subject=subject, **settings[name])
        found.save(options.out / name)
        print(f"\n{name}: {time.monotonic() - start:.0f} s", flush=True)
        show(found)


def deit_tiny(weights: str) -> str:
    """The expression of DeiT-Ti with the weights of a file."""
    if not weights and "VITLAB_DATA" not in os.environ:
        sys.exit(
            "no weights: give --weights FILE.safetensors, set VITLAB_DATA to the folder of the data, or try --smoke"
        )
    weights = weights or f"{os.environ['VITLAB_DATA']}/deit_tiny_patch16_224.safetensors"
    return f"timm/deit_tiny_patch16_224(weights={weights!r})"


def show(found: Measurement) -> None:
    """Accuracies in per cent with their standard errors, one row for each place of the first axis."""
    first, *second = found.dims["accuracy"]
    columns = [str(label) for label in found.axes[second[0]]] if second else ["accuracy"]
    print(f"| {first} | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for index, label in enumerate(found.axes[first]):
        pairs = zip(
            found.values["accuracy"][index].reshape(-1), found.values["standard_error"][index].reshape(-1), strict=True
        )
        print(f"| {label} | {' | '.join(f'{100 * value:.1f} ± {100 * error:.1f}' for value, error in pairs)} |")
    single = {name: float(value) for name, value in found.values.items() if not value.ndim}
    print(", ".join(f"{name} {value:.4f}" for name, value in single.items()), flush=True)


if __name__ == "__main__":
    main()
