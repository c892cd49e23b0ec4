"""Does a part help a pretrained DeiT-Ti when it is added at fine-tuning? UperNet on CamVid, paired seeds.

    VITLAB_DATA=... python studies/finetune_camvid.py --out runs/finetune_camvid

Plain, CB_S, TAP with identity initialisation, and ADL, each trained with the same seeds; then mIoU on the clean test
images, under the five perturbations of CB Table 9 and under the corruptions of Cityscapes-C. The papers pretrain with
their parts, so these are other experiments than CB Table 6 or TAPADL Table 4.

Every finished run writes one JSON file; what `--out` or `--done` already holds is skipped. Needs CamVid and the weights
as `deit_tiny_patch16_224.safetensors` below VITLAB_DATA. `--smoke` trains small models on scenes for one step.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from evidence.measuring import plain
from evidence.working import names_of_finished

import vitlab
from vitlab.core.recipe import change
from vitlab.core.store import Run, write_atomically
from vitlab.inputs.pairs import pair_parts
from vitlab.recipes.segmentation import camvid_upernet, quick_segmentation

#: The compared variants, as settings of the recipe `camvid_upernet`.
ARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cb_s": {"part": "cb_s"},
    "tap": {"part": "tap"},
    "adl": {"diversification": 1.0},
}
#: Values of `segmentation_corruptions` that are kept.
KEPT = ("clean_miou", "clean_class_iou", "miou", "corruption_miou", "group_miou", "mean_miou", "miou_of_run")
EXAMPLES = ("example_image", "example_truth", "example_prediction")


def main() -> None:
    """Train and measure all networks that are not done yet."""
    options = _options()
    if not options.smoke:
        _weights(options.weights)  # exits without data
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    done = {path.stem for path in out.glob("*.json")} | names_of_finished(options.done)
    seeds = options.seeds[:1] if options.smoke else options.seeds
    jobs = [(arm, seed) for seed in seeds for arm in options.arms or ARMS]
    jobs = [(arm, seed) for arm, seed in jobs if f"{arm}-{seed}" not in done]
    print(f"{len(jobs)} runs to do, {len(done)} done", flush=True)
    for arm, seed in jobs:
        start = time.monotonic()
        result = run(arm, seed, options)
        with write_atomically(out / f"{arm}-{seed}.json") as file:
            file.write(json.dumps(result, ensure_ascii=False).encode())
        print(
            f"{arm}-{seed}: mIoU {result['miou']:.2f}, CB Table 9 {result['perturbed']:.2f}, "
            f"Cityscapes-C {result['corrupted']:.2f}, {result['images_per_second']} images/s, "
            f"{time.monotonic() - start:.0f} s",
            flush=True,
        )


def run(arm: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train and measure one network; returns its results as plain data."""
    images, severities = options.images, options.severities
    if options.smoke:
        recipe = replace(quick_segmentation(images=8, epochs=1, **ARMS[arm]), batch_size=8)
        images, severities = 2, [3]
    else:
        recipe = camvid_upernet(weights=_weights(options.weights), epochs=options.epochs, seed=seed, **ARMS[arm])
        recipe = replace(recipe, evaluate_every=options.epochs)
    recipe = change(recipe, tuple(options.set))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="camvid-") as folder:
        last = vitlab.train(recipe, folder, device=options.device)
        rows = [row for row in Run(Path(folder)).metrics() if "images_per_second" in row]
        model = vitlab.load(f"file/{folder}")
    trained = time.monotonic()
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    (batches,) = pair_parts(model, recipe.data, images, 1, batch_size=16)
    batches = replace(batches, items=[(pixels.to(device), masks.to(device)) for pixels, masks in batches])
    runs = 1 if options.smoke else 5
    nine = vitlab.stress("segmentation_corruptions", model, batches, name=arm, runs=runs, pictures=4)
    settings = {"suite": "cityscapes_c", "severities": severities, "pictures": 0}
    groups = vitlab.stress("segmentation_corruptions", model, batches, name=arm, **settings)
    rates = [row["images_per_second"] for row in rows]
    pictures = {name: nine.values[name].tolist() for name in EXAMPLES} if seed == options.seeds[0] else {}
    return {
        "arm": arm,
        "seed": seed,
        "protocol": "part added at fine-tuning",
        "recipe": repr(recipe),
        "epochs": recipe.epochs,
        "miou": plain(last["miou"]),
        "pixel_accuracy": plain(last["pixel_accuracy"]),
        "perturbed": plain(100 * float(nine.values["mean_miou"])),
        "corrupted": plain(100 * float(groups.values["mean_miou"])),
        "context_broadcasting": _kept(nine),
        "cityscapes_c": _kept(groups),
        "pictures": pictures,
        "metrics": plain(rows),
        "images_per_second": round(sorted(rates)[len(rates) // 2]),
        "seconds": {"training": round(trained - began, 2), "measuring": round(time.monotonic() - trained, 2)},
        "provenance": dict(nine.provenance),
    }


def _kept(found: vitlab.Measurement) -> Any:
    values = {name: found.values[name] for name in KEPT}
    axes = {name: found.axes[name] for name in ("condition", "corruption", "group", "class")}
    return plain({**values, "axes": axes, "settings": found.settings})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/finetune_camvid"))
    parser.add_argument("--done", type=Path, help="a folder of results, or a file with their names, to be skipped")
    parser.add_argument("--arms", nargs="*", default=[], choices=list(ARMS), help="all by default")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--images", type=int, help="test images under each condition; all by default")
    parser.add_argument("--severities", nargs="*", type=int, default=[1, 2, 3], help="of Cityscapes-C")
    parser.add_argument("--weights", default="", help="file of the weights; by default below VITLAB_DATA")
    parser.add_argument("--device", help="cpu or cuda; by default CUDA where there is one")
    parser.add_argument("--set", action="append", default=[], help="a setting of every recipe, key=value, for trials")
    parser.add_argument("--smoke", action="store_true", help="one seed, one step, two images of scenes")
    return parser.parse_args()


def _weights(given: str) -> str:
    if not given and "VITLAB_DATA" not in os.environ:
        sys.exit("no data: set VITLAB_DATA to the folder of CamVid and of the weights")
    return given or f"{os.environ['VITLAB_DATA']}/deit_tiny_patch16_224.safetensors"


if __name__ == "__main__":
    main()
