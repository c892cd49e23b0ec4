"""Insert Context Broadcasting into a trained timm model, compare the attention entropy, and remove it again.

    python examples/fit_context_broadcasting.py               trains a small ViT for a minute first
    python examples/fit_context_broadcasting.py --model "timm/deit_tiny_patch16_224(pretrained=True)" --data imagenet

The model was not trained with the part: this shows how to insert and measure a part, not its benefit. For that see
`cifar100_context_broadcasting.py`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import vitlab


def main() -> None:
    """Measure before and after, and write a report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="a model expression; by default a small ViT is trained")
    parser.add_argument("--part", default="ContextBroadcast(blocks='upper')")
    parser.add_argument("--data", default="scenes(train=1, test=64, objects=1, cues='agree')")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("runs/fit_context_broadcasting"))
    parser.add_argument("--smoke", action="store_true", help="one epoch of training on few images")
    options = parser.parse_args()
    model = vitlab.load(options.model or trained(options.out / "model", smoke=options.smoke)).eval()
    batches = vitlab.batches_for(model, options.data, options.images)
    images, _ = next(iter(batches))
    with torch.no_grad():
        before = model(images[:2])
    plain = vitlab.measure("attention_entropy", model, batches, name="plain")
    vitlab.retrofit(model, options.part)
    fitted = vitlab.measure("attention_entropy", model, batches, name=options.part)
    for layer, old, new in zip(plain.axes["layer"], plain.values["mean"], fitted.values["mean"], strict=True):
        print(f"{layer:12} {old.mean():.4f} -> {new.mean():.4f} nats")
    vitlab.restore(model)
    with torch.no_grad():
        print("restored bit for bit:", torch.equal(model(images[:2]), before))
    print(vitlab.report([plain, fitted], options.out / "report.html", title=f"{options.part}, fitted"))


def trained(folder: Path, *, smoke: bool) -> str:
    """Returns the expression of a small timm ViT trained on scenes; a second call reuses the checkpoint."""
    recipe = "quick(epochs=1, images=192)" if smoke else "quick"
    print(f"top-1 {vitlab.train(recipe, folder)['top1']:.1f} %, chance 20 %", flush=True)
    return f"file/{folder / 'model.safetensors'}"


if __name__ == "__main__":
    main()
