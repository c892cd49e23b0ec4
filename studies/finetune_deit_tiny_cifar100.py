"""Does a part help a pretrained DeiT-Ti when it is added at fine-tuning? CIFAR-100 at 224×224, paired seeds.

    VITLAB_DATA=... python studies/finetune_deit_tiny_cifar100.py --out runs/finetune_deit_tiny --seconds 1500

Plain, CB_S, TAP with identity initialisation, and ADL, each fine-tuned with the same seeds; then clean accuracy and
accuracy under the 15 corruptions, which are applied to the 32×32 images as in CIFAR-100-C. The papers pretrain with
their parts, so these are other experiments than CB Table 6 or TAPADL Table 4.

Images stay on the device as uint8 of 32×32 and are augmented there; the model resizes them. Every finished run writes
one JSON file; what `--out` or `--done` already holds is skipped. Needs CIFAR-100 and the weights as
`deit_tiny_patch16_224.safetensors` below VITLAB_DATA. `--smoke` fine-tunes a tiny random model on a few scenes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from evidence.finetuning import ARMS, Tuner
from evidence.working import names_of_finished

from vitlab.core.recipe import change
from vitlab.core.store import write_atomically
from vitlab.recipes.finetune import finetune

#: Crops and flips of the 32×32 images, half of the batches mixed, as in vit_tiny_cifar100; ADL in its released form.
SMALL_IMAGES = {
    "augment.crop": "pad",
    "augment.randaugment": "",
    "augment.erasing": 0.0,
    "augment.mix_probability": 0.5,
    "objective.diversification_form": "released",
    "compile": True,
}

SMOKE = "timm/vit_tiny_patch16_224(img_size=64, patch_size=16, embed_dim=24, depth=2, num_heads=3, num_classes=25)"
SMOKE_SETTINGS = ("batch_size=16", "epochs=1", "precision=float32", "compile=False")
SMOKE_STRESS = {"names": ("gaussian_noise", "fog"), "severities": (1, 5)}


def main() -> None:
    """Fine-tune and measure all networks that are not done yet."""
    options = _options()
    out: Path = options.out
    stress: dict[str, Any] = {"images": options.images}
    settings, data = tuple(options.set), "cifar100"
    with tempfile.TemporaryDirectory() as temporary:
        model = _smoke_model(temporary) if options.smoke else _deit_tiny(options.weights)
        if options.smoke:
            settings, data, stress = (*SMOKE_SETTINGS, *settings), "scenes(train=64, test=32)", SMOKE_STRESS
        tuner = Tuner(data, stress, options.device)
        out.mkdir(parents=True, exist_ok=True)
        done = {path.stem for path in out.glob("*.json")} | names_of_finished(options.done)
        seeds = options.seeds[:1] if options.smoke else options.seeds
        # ADL last: its recorder acts on every model of the process, which would then be compiled again.
        arms = [arm for arm in ARMS if not options.arms or arm in options.arms]
        jobs = [(arm, seed) for seed in seeds for arm in arms if arm != "adl"]
        jobs += [("adl", seed) for seed in seeds if "adl" in arms]
        jobs = [(arm, seed) for arm, seed in jobs if f"{arm}-{seed}" not in done]
        print(f"{len(jobs)} runs to do, {len(done)} done", flush=True)
        began, longest = time.monotonic(), 0.0
        for arm, seed in jobs:
            left = float("inf") if options.seconds is None else options.seconds - (time.monotonic() - began)
            if left < longest or left <= 0:
                print(f"{left:.0f} s are left, a run takes {longest:.0f} s; stopped", flush=True)
                break
            start = time.monotonic()
            recipe = finetune(model, data, seed=seed, epochs=options.epochs, batch_size=512, **ARMS[arm])
            recipe = change(change(recipe, SMALL_IMAGES), settings)
            found = tuner.run(arm, recipe)
            with write_atomically(out / f"{arm}-{seed}.json") as file:
                file.write(json.dumps(found, ensure_ascii=False).encode())
            longest = max(longest, time.monotonic() - start)
            print(
                f"{arm}-{seed}: top-1 {found['top1']:.2f}, corrupted {found['corrupted']:.2f}, "
                f"{found['images_per_second']:,} images/s, {time.monotonic() - start:.0f} s",
                flush=True,
            )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/finetune_deit_tiny_cifar100"))
    parser.add_argument("--done", type=Path, help="a folder of results, or a file with their names, to be skipped")
    parser.add_argument("--arms", nargs="*", default=[], choices=list(ARMS), help="all by default")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--images", type=int, default=2000, help="images under each corruption and severity")
    parser.add_argument("--seconds", type=float, help="begin no run that would not end within this time")
    parser.add_argument("--weights", default="", help="file of the weights; by default below VITLAB_DATA")
    parser.add_argument("--device", help="cpu or cuda; by default CUDA where there is one")
    parser.add_argument("--set", action="append", default=[], help="a setting of every recipe, key=value, for trials")
    parser.add_argument("--smoke", action="store_true", help="one seed, one epoch, a tiny random model, scenes")
    return parser.parse_args()


def _deit_tiny(weights: str) -> str:
    if not weights and "VITLAB_DATA" not in os.environ:
        sys.exit("no data: set VITLAB_DATA to the folder of CIFAR-100 and of the weights, or try --smoke")
    weights = weights or f"{os.environ['VITLAB_DATA']}/deit_tiny_patch16_224.safetensors"
    return f"timm/deit_tiny_patch16_224(weights={weights!r})"


def _smoke_model(folder: str) -> str:
    from vitlab import zoo

    path = f"{folder}/weights.safetensors"
    zoo.save(zoo.load(SMOKE, seed=0), SMOKE, path)
    return f"{SMOKE[:-1]}, weights={path!r})"


if __name__ == "__main__":
    main()
