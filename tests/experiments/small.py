"""Tiny jobs and an experiment of them, for the tests of execution."""

from __future__ import annotations

import sys
from types import ModuleType

from vitlab.core.experiment import Claim, Job, Published, Results, exact, judged, paired
from vitlab.experiments.catalogue import Experiment

VIT = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)"
DATA = "scenes(train=32, test=16, objects=1, size=32)"
ENTROPY = Job("plain", "attention_entropy", model=VIT, data=DATA, images=8)
SHORT = ("epochs=2", "batch_size=16", f"model={VIT}", f"data={DATA}")
TRAINED = Job("plain", "training", recipe="quick", changes=SHORT)


def experiment_of(name: str, jobs: list[Job]) -> Experiment:
    """An experiment with one statistical and one deterministic claim."""
    module = ModuleType(f"small_{name}")
    module.TITLE = f"The experiment {name}"
    module.PAPER = [Published("ViT", "top-1", 50.0), Published("ViT", "loss", None)]
    module.CLAIMS = [
        Claim("gain", "the second arm is better", paper=1.0),
        Claim("count", "there are 20185 parameters", paper=20185, deterministic=True),
    ]

    def check(results: Results) -> list:
        effects = paired(results.by_seed("plain", "training", "top1"), results.by_seed("cb", "training", "top1"))
        count = results.by_seed("plain", "sizes", "parameters").get(0)
        return [judged(module.CLAIMS[0], effects), exact(module.CLAIMS[1], count)]

    module.plan = lambda scale: jobs
    module.check = check
    sys.modules[module.__name__] = module
    return Experiment(name, module.__name__)
