"""What the experiments of CB share: networks at each scale, with their seeds and costs.

Scales. `smoke`: the recipe `quick` on 96 scenes for one epoch, for every size of the network. `small`: ViT-Ti and
ViT-S with patches of 4×4 on CIFAR-100, 100 epochs, five seeds; a table of one network uses ViT-Ti, so that tables share
their runs. `released`: the authors published no weights, so that only rows without a module are measured, with DeiT's
weights. `full`: the recipes of the paper; three seeds are our choice, because one run gives no interval.

Costs. Full: 53 hours on 8 V100 for DeiT-B (DeiT, introduction), scaled by multiply-accumulates and epochs. Small:
57,000 images per second for ViT-Ti on one H200 (docs/results/speed.md), a quarter of that for ViT-S, and a minute to
start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vitlab.core.experiment import Job, Scale
from vitlab.core.expressions import call_text

SEEDS: dict[Scale, tuple[int, ...]] = {"smoke": (0,), "small": (0, 1, 2, 3, 4), "released": (), "full": (0, 1, 2)}

#: Names in the paper.
SIZES = {"tiny": "ViT-Ti", "small": "ViT-S", "base": "ViT-B"}
MODULES = {"cb": "CB", "cb_s": "CB_S", "cb_gate": "CB_gate", "cb_hybrid": "CB_hybrid"}

#: Multiply-accumulates in 10⁹ (Table 5), for the cost of training.
MACS = {"tiny": 1.3, "small": 4.6, "base": 17.6}

#: Published weights of DeiT-Ti in the data folder.
DEIT_TINY = "timm/deit_tiny_patch16_224(weights='{root}/deit_tiny_patch16_224.safetensors')"

#: A small ViT with random weights and the 197 tokens of the paper.
TOKENS_197 = "timm/vit_tiny_patch16_224(embed_dim=48, depth=2, num_heads=3, num_classes=25)"

#: What the jobs on a data set need.
IMAGENET: dict[str, Any] = {"needs": ("imagenet",), "gigabytes": 150.0}
CIFAR100: dict[str, Any] = {"needs": ("cifar-100-binary",), "gigabytes": 0.2}

#: The fields of jobs that measure one model on validation images, in ten parts; on the ImageNet sample at `small`.
VALIDATION: dict[Scale, dict[str, Any]] = {
    "smoke": {"images": 16},
    "small": {
        "data": "imagenet",
        "images": 1000,
        "repeats": 10,
        "needs": ("imagenet-val-1000", "deit_tiny_patch16_224.safetensors"),
        "gpu_minutes": 1.0,
        "gigabytes": 0.1,
    },
    "released": {"data": "imagenet", "images": 1000, "repeats": 10, "gpu_minutes": 1.0, **IMAGENET},
}
VALIDATION["full"] = VALIDATION["released"]  # published weights: the paper trains nothing for these figures


#: What replaces the images of the paper at `small`, where published weights are measured.
SAMPLE = (
    "1,000 validation images of ImageNet, one of each class, cropped to 256×256, replace its 50,000. Intervals are "
    "over ten parts of these images and say nothing about other training runs."
)

#: What the effects of modules in ViT-Ti and ViT-S contain at `full`.
REPEATED: dict[Scale, tuple[str, ...]] = {
    "full": (
        "As in the paper, ViT-Ti and ViT-S are trained with repeated augmentation without a module and without it with "
        "a module, and ViT-B with a module has more warm-up and drop path: an effect is that of both changes. "
        "cb_table_2 and cb_fig_s11 also have the baseline without repeated augmentation.",
    )
}


#: What the files of the published sets need.
FILES: dict[str, dict[str, Any]] = {
    "imagenet_v2": {"needs": ("imagenetv2",), "gigabytes": 4.0},
    "imagenet_real": {"needs": ("imagenet",), "gigabytes": 150.0},
    "imagenet_a": {"needs": ("imagenet-a",), "gigabytes": 0.7},
}


def full_minutes(macs: float, epochs: float = 300) -> float:
    """Returns the estimated minutes of a training run on ImageNet-1K, on one GPU.

    >>> full_minutes(17.6) / 60
    424.0
    """
    return round(53 * 60 * 8 * macs / MACS["base"] * epochs / 300)


def call(name: str, settings: Mapping[str, Any]) -> str:
    """Returns a recipe expression; settings that are '' or 0 are omitted.

    >>> call("quick", {"part": "cb", "blocks": ""}), call("quick", {}), call("deit_imagenet", {"repeated": False})
    ("quick(part='cb')", 'quick', 'deit_imagenet(repeated=False)')
    """
    given = {key: value for key, value in settings.items() if value or value is False}
    return call_text(name, given) if given else name


@dataclass(frozen=True)
class Network:
    """A ViT of the paper, plain or with a module.

    Args:
        part: the short name of a module in recipes; '' for none.
        size: `tiny`, `small` or `base`.
        position, blocks, heads: as in the recipe `context_broadcasting`.
        repeated: whether a network without a module is trained with repeated augmentation, as the paper's baseline.
            The paper trains ViT-Ti and ViT-S with its modules without it: False gives a baseline that differs in the
            module only.
        alone: whether its table has no other size, so that ViT-Ti replaces it at `small`.
    """

    part: str = ""
    size: str = "small"
    position: str = ""
    blocks: str = ""
    heads: int = 0
    repeated: bool = True
    alone: bool = True

    def recipe(self, scale: Scale) -> str:
        """Returns the recipe of a scale; '' if there is none."""
        inserted = {"part": self.part, "position": self.position, "blocks": self.blocks}
        if scale == "smoke":
            return call("quick", {**inserted, "heads": self.heads, "images": 96, "epochs": 1})
        if scale == "small" and self._small_size:
            return call(f"vit_{self._small_size}_cifar100", {**inserted, "heads": self.heads})
        if scale == "full" and self.part:
            return call("context_broadcasting", {"size": self.size, **inserted, "heads": self.heads})
        if scale == "full":
            fair = {} if self.repeated else {"repeated": False}
            return call("deit_imagenet", {"size": self.size, "heads": self.heads, **fair})
        return ""

    @property
    def _small_size(self) -> str:
        """The size of the network that replaces it at `small`; '' for none."""
        return "tiny" if self.alone else "" if self.size == "base" else self.size

    def jobs(self, scale: Scale, arm: str, *procedures: str, **fields: Any) -> list[Job]:
        """Returns the jobs on its training runs at a scale, one per procedure and seed.

        Args:
            scale: the scale.
            arm: the name of the arm.
            procedures: by default `training`.
            fields: other fields of the jobs.
        """
        recipe = self.recipe(scale)
        if not recipe:
            return []
        costs = {
            "smoke": {},
            "small": {**CIFAR100, "gpu_minutes": 7.0 if self._small_size == "small" else 2.5},
            "full": {**IMAGENET, "gpu_minutes": full_minutes(MACS[self.size])},
        }
        return runs(scale, arm, recipe, *procedures, **{**costs[scale], **fields})


def runs(scale: Scale, arm: str, recipe: str, *procedures: str, **fields: Any) -> list[Job]:
    """Returns the jobs on the training runs of a recipe, one per procedure (by default `training`) and seed."""
    return [
        Job(arm, procedure, recipe=recipe, seed=seed, **fields)
        for procedure in procedures or ("training",)
        for seed in SEEDS[scale]
    ]


def sizes(arm: str, model: str) -> Job:
    """Returns the job that counts the parameters and operations of a model."""
    return Job(arm, "sizes", model=model)
