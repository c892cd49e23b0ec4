"""Train two small models that differ in one part, run stress tests on both, and write one report.

    python examples/stress_two_models.py                      a few minutes on a laptop, nothing to download
    python examples/stress_two_models.py --part tap --epochs 12

One seed and small images: this shows how to compare models, not which is better. The report states the uncertainty of
each number.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import vitlab

DATA = "scenes(train=1, test=512, objects=1, cues='agree')"  # the test scenes of the recipe `quick`
TESTS: dict[str, dict[str, Any]] = {
    "occlusion": {"grid": 8},  # cells of 4x4 pixels, the patches of the model
    "patch_shuffle": {},
    "corruptions": {"names": ("gaussian_noise", "defocus_blur", "contrast"), "severities": (1, 3, 5)},
}


def main() -> None:
    """Train, test and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="cb", help="short name of the part of the second model, as in the recipes")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--images", type=int, default=256, help="test images for the stress tests")
    parser.add_argument("--out", type=Path, default=Path("runs/stress_two_models"))
    parser.add_argument("--smoke", action="store_true", help="one epoch on few images")
    options = parser.parse_args()
    if options.smoke:
        options.epochs, options.images = 1, 32
    found: list[vitlab.Measurement] = []
    for name, part in (("plain", ""), (options.part, options.part)):
        found += strain(name, part, options)
    print(vitlab.report(found, options.out / "report.html", title=f"A small ViT, plain and with {options.part}"))


def strain(name: str, part: str, options: argparse.Namespace) -> list[vitlab.Measurement]:
    """Train one model, resuming an interrupted run, and run every test on it."""
    images = 192 if options.smoke else 1536
    recipe = f"quick(part={part!r}, epochs={options.epochs}, images={images})"
    row = vitlab.train(recipe, options.out / name)
    print(f"{name}: top-1 {row['top1']:.1f} %, chance 20 %", flush=True)
    model = vitlab.load(f"file/{options.out / name / 'model.safetensors'}").eval()
    batches = vitlab.batches_for(model, DATA, options.images)
    found = []
    for test, settings in TESTS.items():
        measured = vitlab.stress(test, model, batches, name=name, **settings)
        measured.save(options.out / "measurements" / f"{test}-{name}")
        drops = 100 * measured.values["drop"]
        print(f"{name}: {test} costs {drops.min():.1f} to {drops.max():.1f} points", flush=True)
        found.append(measured)
    return found


if __name__ == "__main__":
    main()
