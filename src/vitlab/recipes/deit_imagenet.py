"""DeiT on ImageNet-1K, plain and distilled: the base of the other ImageNet recipes.

Source: Touvron et al. 2021, "Training data-efficient image transformers", and its released settings. Two choices are
ours: autocast in bfloat16 instead of float16 (NaN was reported for the base model with float16), and a cosine schedule
that is updated every step instead of every epoch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from vitlab.core.bounds import Choices
from vitlab.core.recipe import Augment, Objective, Optimizer, Recipe
from vitlab.recipes._parts import OwnHeads, PartName, choose, model, parts

__all__ = ["deit_distilled", "deit_imagenet"]

SIZES = {"tiny": "tiny", "small": "small", "base": "base"}

#: Soft distillation has weight λ = 0.1 and temperature τ = 3; hard distillation weights both losses equally (DeiT).
DISTILLATION = {
    "hard": Objective(distillation="hard", distillation_weight=0.5),
    "soft": Objective(distillation="soft", distillation_weight=0.1, temperature=3.0),
}

Size = Annotated[str, Choices(tuple(SIZES))]
Distillation = Annotated[str, Choices(tuple(DISTILLATION))]

#: With its published weights: a teacher with random weights would only add noise to the labels.
TEACHER = "timm/regnety_160.deit_in1k(pretrained=True)"


def deit_imagenet(size: Size = "tiny", part: PartName = "", repeated: bool = True, heads: OwnHeads = 0) -> Recipe:
    """DeiT-Ti, S or B on ImageNet-1K, 300 epochs.

    `part` changes nothing else in the recipe; `context_broadcasting` also makes the other changes of the paper.
    Without repeated augmentation this is the fair baseline for ViT-Ti/S with CB, which the CB paper does not report.

    Source: DeiT's released code; CB, Sec. 4.2 and Table 5; AdamW, 1e-3 · batch / 1024, weight decay 0.05.
    Hardware: 8 V100.
    Runtime: 53 hours for DeiT-B (DeiT, introduction); not published for Ti and S.
    Expected: top-1 of 72.2 (tiny), 79.9 (small), 81.8 (base); None without repeated augmentation.
    Command: torchrun --nproc-per-node 8 -m vitlab train "deit_imagenet(size='tiny', part='cb')"

    Args:
        size: `tiny`, `small` or `base`.
        part: short name of a part (`cb`, `cb_s`, `cb_gate`, `cb_hybrid`, `se`, `uniform_a`, `uniform_b`, `uniform_c`).
        repeated: three repetitions of each image (repeated augmentation).
        heads: heads of each attention; 0 for the model's own (3, 6, 12).

    >>> deit_imagenet().optimizer.lr, deit_imagenet(repeated=False).augment.repeats
    (0.001, 1)
    """
    name = f"deit_{choose('size', size, SIZES)}_patch16_224"
    settings = {"num_heads": heads, "drop_path_rate": 0.1}
    return deit_recipe(model("timm", name, settings, *parts(part)), repeated=repeated)


def deit_distilled(
    size: Size = "tiny", kind: Distillation = "hard", part: PartName = "", repeated: bool = True
) -> Recipe:
    """DeiT with a distillation token and a RegNetY-16GF as the teacher.

    Source: DeiT, Sec. 4: hard labels, or soft ones with λ = 0.1 and τ = 3; CB, Table S12.
    Hardware: 8 V100.
    Runtime: not published.
    Expected: top-1 of 74.5 (tiny), 81.2 (small), 83.4 (base) for hard; None for soft.
    Command: torchrun --nproc-per-node 8 -m vitlab train "deit_distilled(size='small', kind='hard')"

    Args:
        size: `tiny`, `small` or `base`.
        kind: `hard` or `soft`.
        part, repeated: as in `deit_imagenet`.
    """
    name = f"deit_{choose('size', size, SIZES)}_distilled_patch16_224"
    recipe = deit_recipe(model("timm", name, {"drop_path_rate": 0.1}, *parts(part)), repeated=repeated)
    return replace(recipe, objective=replace(choose("kind of distillation", kind, DISTILLATION), teacher=TEACHER))


def deit_recipe(
    text: str, *, repeated: bool = True, epochs: int = 300, batch_size: int = 1024, warmup_epochs: float = 5
) -> Recipe:
    """Returns DeiT's settings with any model for ImageNet-1K.

    The learning rate scales with the batch: 1e-3 · batch / 1024. DeiT computes an average of the weights (decay
    0.99996), but reports the raw weights.
    """
    return Recipe(
        model=text,
        data="imagenet",
        epochs=epochs,
        batch_size=batch_size,
        augment=Augment(
            crop="resized",
            randaugment="rand-m9-mstd0.5-inc1",
            erasing=0.25,
            mixup=0.8,
            cutmix=1.0,
            repeats=3 if repeated else 1,
        ),
        optimizer=Optimizer(lr=1e-3 * batch_size / 1024, warmup_epochs=warmup_epochs),
        ema=0.99996,
        precision="bfloat16",
    )
