"""CB Fig. 3: one extra attention block or one extra MLP block in a ViT of eight layers.

The width is not published: that of ViT-S is our choice. With nearly equal parameters (an MLP of ratio 2) the attention
block needs more operations, because the products of queries, keys and values have no parameters.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import claims_of, difference, gain, holds, verdicts_of
from vitlab.experiments.context_broadcasting._shared import CIFAR100, IMAGENET, full_minutes, runs, sizes

TITLE = "CB Fig. 3: an extra attention or MLP block"

PAPER = [
    Published(row, column, None)
    for row in ("8 layers + MSA", "8 layers + MLP")
    for column in ("training loss by epoch", "top-1 by epoch")
]

#: Arm -> the model of vitlab.
_MODELS = {
    "none": "vitlab/vit_small_depth8",
    "attention": "vitlab/vit_small_depth8_extra_attention",
    "mlp": "vitlab/vit_small_depth8_extra_mlp",
}
_NEARLY = 0.05  # relative difference; the paper says "nearly equal" without a number

#: Settings of the models that replace those of a recipe on small images.
_SMALL = "img_size=32, patch_size=4, embed_dim=192, num_heads=3, num_classes=100, drop_path_rate=0.1"
_SMOKE = "img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25"


def _nearly_equal(results: Results, value: str) -> bool | None:
    attention, mlp = (difference(results, "none", arm, value) for arm in ("attention", "mlp"))
    return None if attention is None or mlp is None else abs(attention / mlp - 1) <= _NEARLY


_CHECKS = [
    gain(
        Claim(
            "training loss",
            "the extra attention block ends with a lower training loss than the extra MLP block",
            source="Sec. 3.1, Fig. 3",
        ),
        "attention",
        "mlp",
        "train_loss",
        unit="nats",
    ),
    gain(
        Claim(
            "top-1",
            "the extra attention block ends with a higher top-1 accuracy than the extra MLP block",
            source="Sec. 3.1, Fig. 3",
        ),
        "mlp",
        "attention",
    ),
    holds(
        Claim(
            "parameters",
            "both extra blocks have the same number of parameters, within 5 %",
            deterministic=True,
            source="Sec. 3.1: nearly equal; 5 % is our choice",
        ),
        lambda results: _nearly_equal(results, "parameters"),
    ),
    holds(
        Claim(
            "FLOPs",
            "both extra blocks have the same number of multiply-accumulates, within 5 %",
            deterministic=True,
            source="Sec. 3.1: nearly equal; 5 % is our choice",
        ),
        lambda results: _nearly_equal(results, "macs"),
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """The counts of the models of the paper, and their training; on CIFAR-100 with the width of ViT-Ti."""
    jobs = [sizes(arm, model) for arm, model in _MODELS.items()]
    for arm, model in _MODELS.items():
        if scale == "smoke":
            jobs += runs(scale, arm, "quick(images=96, epochs=1)", changes=(f"model={model}({_SMOKE})",))
        elif scale == "small":
            fields = {**CIFAR100, "changes": (f"model={model}({_SMALL})",), "gpu_minutes": 2.5}
            jobs += runs(scale, arm, "vit_tiny_cifar100", **fields)
        elif scale == "full":
            recipe = f"extra_block(extra={arm!r})" if arm != "none" else "extra_block(extra='')"
            jobs += runs(scale, arm, recipe, **IMAGENET, gpu_minutes=full_minutes(3.2))
    return jobs


def check(results: Results) -> list[Verdict]:
    """Counts are exact; metrics of the last epoch are paired by seed."""
    return verdicts_of(_CHECKS, results)
