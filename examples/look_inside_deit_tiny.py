"""Measure a pretrained DeiT-Ti with the main instruments on real images.

    VITLAB_DATA=... python examples/look_inside_deit_tiny.py --images 1000 --all --device cuda --out runs/deit_tiny

Needs the weights as `deit_tiny_patch16_224.safetensors` and an ImageNet folder below VITLAB_DATA. Without `--all`
instruments with many passes over the data use fewer images: minutes instead of an hour on two cores. `--smoke` measures
a tiny random model on generated scenes instead, as a quick check.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import vitlab

ONE_PASS = (
    "attention_entropy",
    "attention_distance",
    "attention_diversity",
    "token_overfocus",
    "feature_fourier",
    "feature_variance",
)
#: Instruments with separate passes, and the number of images they use without `--all`.
APART = {
    "calibration": 1000,
    "attention_stability": 256,
    "representation_cka": 256,
    "lesion": 128,
}
AUGMENTED = 32  # images for the Hessian, whose mini-batches are augmented as in training
SIZES = {"cpu": 16, "cuda": 250}  # images per batch

SMOKE = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=48, depth=2, num_classes=25)"
SMOKE_DATA = "scenes(train=1, test=32)"


def main() -> None:
    """Run the instruments and store each result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("runs/deit_tiny"))
    parser.add_argument("--data", default="imagenet(full=False)")
    parser.add_argument("--weights", default="")
    parser.add_argument("--all", action="store_true", help="all images for every instrument")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--smoke", action="store_true", help="a tiny random model on 32 embedded scenes")
    options = parser.parse_args()
    if options.smoke:
        options.data, options.images = SMOKE_DATA, 32
    model = vitlab.load(SMOKE if options.smoke else deit_tiny(options.weights), seed=0).to(options.device).eval()
    size = SIZES[options.device.partition(":")[0]]
    batches = vitlab.batches_for(model, options.data, options.images, batch_size=size)
    start = time.monotonic()
    for name, found in vitlab.measure_together(ONE_PASS, model, batches).items():
        found.save(options.out / name)
    print(f"{len(ONE_PASS)} instruments in one pass: {time.monotonic() - start:.0f} s", flush=True)
    for name, count in APART.items():
        start = time.monotonic()
        count = options.images if options.all else min(count, options.images)
        vitlab.measure(name, model, first(batches, count)).save(options.out / name)
        print(f"{name} on {count} images: {time.monotonic() - start:.0f} s", flush=True)
    start = time.monotonic()
    count = options.images if options.all else min(AUGMENTED, options.images)
    shown = vitlab.batches_for(model, options.data, count, augmentation="deit_imagenet")
    vitlab.measure("hessian_spectrum", model, shown).save(options.out / "hessian_spectrum")
    print(f"hessian_spectrum on {count} augmented images: {time.monotonic() - start:.0f} s", flush=True)


def deit_tiny(weights: str) -> str:
    """Returns the expression of DeiT-Ti with the weights of a file."""
    if not weights and "VITLAB_DATA" not in os.environ:
        sys.exit(
            "no weights: give --weights FILE.safetensors, set VITLAB_DATA to the folder of the data, or try --smoke"
        )
    weights = weights or f"{os.environ['VITLAB_DATA']}/deit_tiny_patch16_224.safetensors"
    return f"timm/deit_tiny_patch16_224(weights={weights!r})"


def first(batches: vitlab.Batches, count: int) -> vitlab.Batches:
    """Returns the first `count` images."""
    kept: list[Any] = []
    left = count
    for images, labels in batches:
        if left > 0:
            kept.append((images[:left], labels[:left]))
            left -= len(images)
    return vitlab.Batches(kept, batches.mean, batches.std, batches.classes, batches.fingerprint)


if __name__ == "__main__":
    main()
