"""Run every stress test that needs only clean images on a pretrained DeiT-Ti, and print the tables.

    VITLAB_DATA=... python examples/stress_deit_tiny.py --images 1000 --device cuda --out runs/stress_deit_tiny

Needs the weights as `deit_tiny_patch16_224.safetensors` and an ImageNet folder below VITLAB_DATA. An interrupted
run resumes with the next corruption. `--smoke` uses a tiny random model and generated scenes, as a quick check.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import vitlab

#: The stress tests; epsilons are in 1/255.
TESTS = [
    "corruptions",
    "occlusion",
    "patch_shuffle",
    "adversarial(epsilons=(0.5, 1.0, 2.0, 4.0))",
    "frequency_noise",
]

SMOKE = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=48, depth=2, num_classes=25)"
SMOKE_DATA = "scenes(train=1, test=16)"
SMOKE_TESTS = ["corruptions(names=('gaussian_noise', 'fog'), severities=(1, 5))", *TESTS[1:]]


def main() -> None:
    """Run the tests and print each result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("runs/stress_deit_tiny"))
    parser.add_argument("--data", default="imagenet(full=False)")
    parser.add_argument("--weights", default="")
    parser.add_argument("--device", default=None)
    parser.add_argument("--test", action="append", default=[], help="a stress test with its settings; all by default")
    parser.add_argument("--smoke", action="store_true", help="a tiny random model on 16 embedded scenes")
    options = parser.parse_args()
    tests = options.test or (SMOKE_TESTS if options.smoke else TESTS)
    if options.smoke:
        options.data, options.images = SMOKE_DATA, 16
    model = SMOKE if options.smoke else deit_tiny(options.weights)
    what = {"data": options.data, "images": options.images, "device": options.device}
    for test in tests:
        (found,) = vitlab.stress_models([model], [test], options.out, **what)
        show(found)


def deit_tiny(weights: str) -> str:
    """Returns the expression of DeiT-Ti with the weights of a file."""
    if not weights and "VITLAB_DATA" not in os.environ:
        sys.exit(
            "no weights: give --weights FILE.safetensors, set VITLAB_DATA to the folder of the data, or try --smoke"
        )
    weights = weights or f"{os.environ['VITLAB_DATA']}/deit_tiny_patch16_224.safetensors"
    return f"timm/deit_tiny_patch16_224(weights={weights!r})"


def show(found: vitlab.Measurement) -> None:
    """Print accuracies in per cent with standard errors, one row per entry of the first axis."""
    print(f"\n{found.kind}")
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
