"""Train a small model without and with the attention diversification loss (ADL), and compare row similarity.

    python examples/train_with_diversification.py             two trainings of about a minute, nothing to download

ADL is exactly 0 while attention is near uniform, so it may have no effect in a short run. One seed only:
a demonstration, not a result.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import vitlab

DATA = "scenes(train=1, test=512, objects=1, cues='agree')"  # the test scenes of the recipe `quick`


def main() -> None:
    """Train with each weight, measure row similarity, and write a report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 1.0], help="weights λ of ADL")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--images", type=int, default=1536)
    parser.add_argument("--out", type=Path, default=Path("runs/train_with_diversification"))
    parser.add_argument("--smoke", action="store_true", help="one epoch on few images")
    options = parser.parse_args()
    if options.smoke:
        options.epochs, options.images = 1, 192
    found = []
    for weight in options.weights:
        recipe = f"quick(diversification={weight}, epochs={options.epochs}, images={options.images})"
        folder = options.out / f"weight-{weight:g}"
        row = vitlab.train(recipe, folder)
        model = vitlab.load(f"file/{folder / 'model.safetensors'}").eval()
        batches = vitlab.batches_for(model, DATA, 64)
        measured = vitlab.measure("attention_diversity", model, batches, name=f"λ = {weight:g}")
        rows, heads = measured.values["row_similarity"].mean(), measured.values["head_similarity"].mean()
        print(f"λ = {weight:g}: top-1 {row['top1']:.1f} %, rows alike {rows:.3f}, heads alike {heads:.3f}", flush=True)
        found.append(measured)
    print(vitlab.report(found, options.out / "report.html", title="Attention diversification"))


if __name__ == "__main__":
    main()
