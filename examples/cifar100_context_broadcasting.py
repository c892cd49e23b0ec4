"""Does Context Broadcasting help a ViT-Ti on CIFAR-100? Same recipe, same seeds, with and without.

    VITLAB_DATA=... python examples/cifar100_context_broadcasting.py --variants plain,cb --seeds 0,1,2,3,4 --out runs/cb

Writes one JSON a variant with the metrics of every epoch and the attention entropy by layer of every seed, as they
come. The compiled step is reused from seed to seed: weights are drawn again in place. `--smoke` trains for an epoch on
a few embedded scenes instead, which shows that it runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import vitlab
from vitlab import zoo
from vitlab.core.recipe import Recipe, change
from vitlab.core.store import Run
from vitlab.data.catalogue import open_data
from vitlab.data.images import DataSet, in_memory
from vitlab.recipes.vit_cifar import vit_tiny_cifar100
from vitlab.tasks.classification import Accuracy, batches, make_loss
from vitlab.training.distributed import World, init_distributed
from vitlab.training.loop import train

PARTS = {"plain": "", "cb": "cb"}

#: Half a minute on a CPU, with nothing to download.
SMOKE = ["epochs=1", "batch_size=32", "compile=False", "precision=float32"]
SMOKE_DATA = "scenes(train=64, test=32)"


def main() -> None:
    """Train every variant with every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", default="plain,cb")
    parser.add_argument("--seeds", default="0,1,2,3,4", help="which ones, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("runs/cifar100_context_broadcasting"))
    parser.add_argument("--data", default="cifar100")
    parser.add_argument("--set", action="append", default=[], help="a setting of the recipe, key=value")
    parser.add_argument("--smoke", action="store_true", help="one seed, one epoch, embedded scenes")
    options = parser.parse_args()
    if options.smoke:
        options.data, options.seeds, options.set = SMOKE_DATA, "0", SMOKE + options.set
    world = init_distributed()
    data = open_data(options.data, image_size=32)
    data = replace(data, train=in_memory(data.to_train_on()), test=in_memory(data.test))
    seeds = [int(seed) for seed in options.seeds.split(",")]
    for variant in options.variants.split(","):
        recipe = change(vit_tiny_cifar100(part=PARTS[variant]), options.set)
        rows = []
        for row in train_seeds(recipe, data, world, seeds, options.out / variant):
            rows.append(row)
            path = options.out / f"{variant}.json"
            path.write_text(json.dumps({"variant": variant, "recipe": repr(recipe), "runs": rows}, indent=1))
            print(f"{variant} seed {row['seed']}: top-1 {row['metrics'][-1]['top1']:.2f}", flush=True)


def train_seeds(recipe: Recipe, data: DataSet, world: World, seeds: Sequence[int], out: Path) -> Any:
    """One finished run after the other."""
    model = zoo.load(recipe.model, seed=0).to(world.device)
    loss = make_loss(recipe.objective)
    for seed in seeds:
        own = replace(recipe, seed=seed)
        model.load_state_dict(zoo.load(recipe.model, seed=seed).state_dict())
        feed = batches(own, data, world)
        run = Run(out / f"seed-{seed}")
        train(own, model, feed, loss, Accuracy(data, feed, world, own), run, world=world)
        sample = data.test.subset(range(min(1000, len(data.test))))
        images = [images for images, _ in replace(feed, images=sample.images, labels=sample.labels).evaluation(250)]
        entropy = vitlab.measure("attention_entropy", model, [batch.float() for batch in images])
        yield {
            "seed": seed,
            "metrics": run.metrics(),
            "entropy": entropy.values["mean"].mean(1).tolist(),
            "class_row_entropy": entropy.values["class_row"].mean(1).tolist(),
        }


if __name__ == "__main__":
    main()
