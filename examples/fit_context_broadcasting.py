"""Fit Context Broadcasting into a timm model, compare the entropy of its attention by layer, and take it out again.

    python examples/fit_context_broadcasting.py
    python examples/fit_context_broadcasting.py --model "timm/deit_tiny_patch16_224(pretrained=True)" --data imagenet

Without weights of its own the model is random, and without training CB changes what later layers see, not what they
learned: the numbers show how a part is fitted and measured, not what it is worth.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import vitlab
from vitlab.laboratory import batches_for

SMOKE = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=48, depth=4, num_classes=25)"


def main() -> None:
    """Measure before and after, and write a report of both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="timm/vit_tiny_patch16_224")
    parser.add_argument("--part", default="ContextBroadcast(blocks='upper')")
    parser.add_argument("--data", default="scenes(train=1, test=32)")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("runs/fit_context_broadcasting"))
    parser.add_argument("--smoke", action="store_true", help="a tiny model")
    options = parser.parse_args()
    model = vitlab.load(SMOKE if options.smoke else options.model, seed=0).eval()
    batches = batches_for(model, options.data, options.images)
    images, _ = next(iter(batches))
    with torch.no_grad():
        before = model(images[:2])
    plain = vitlab.measure("attention_entropy", model, batches, subject="plain")
    vitlab.retrofit(model, options.part)
    fitted = vitlab.measure("attention_entropy", model, batches, subject=options.part)
    for layer, old, new in zip(plain.axes["layer"], plain.values["mean"], fitted.values["mean"], strict=True):
        print(f"{layer:12} {old.mean():.3f} -> {new.mean():.3f} nats")
    vitlab.restore(model)
    with torch.no_grad():
        print("restored bit for bit:", torch.equal(model(images[:2]), before))
    print(vitlab.report([plain, fitted], options.out / "report.html", title=f"{options.part} in {options.model}"))


if __name__ == "__main__":
    main()
