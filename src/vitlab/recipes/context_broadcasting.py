"""The training runs of "Scratching Visual Transformer's Back with Uniform Attention" (CB).

DeiT's recipe with the changes that the paper makes (supplement, Sec. 1.3): no repeated augmentation for Ti and S with
its modules; for B, 10 warm-up epochs instead of 5 and more drop path. How much more is published for the distilled B
only, 0.2; using it for B is our choice. No code was released: which layers are "upper", the initial value of Λ, the
position of SE and the exact form of the uniform heads are our choices too, documented with the parts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from vitlab.core.bounds import Choices
from vitlab.core.expressions import PartCall
from vitlab.core.recipe import Recipe
from vitlab.recipes._parts import OwnHeads, PartName, Position, choose, model, parts
from vitlab.recipes.deit_imagenet import (
    DISTILLATION,
    SIZES,
    TEACHER,
    Distillation,
    Size,
    deit_distilled,
    deit_imagenet,
    deit_recipe,
)

__all__ = [
    "context_broadcasting",
    "context_broadcasting_architectures",
    "context_broadcasting_cifar100",
    "context_broadcasting_distilled",
    "extra_block",
]

#: Name -> source, model, drop path, epochs. Drop path is DeiT's, except Swin's own 0.2: our choice.
ARCHITECTURES: dict[str, tuple[str, str, float, int]] = {
    "pit_base": ("timm", "pit_b_224", 0.1, 300),
    "mixer_small": ("timm", "mixer_s16_224", 0.1, 300),
    "pvt_small": ("vitlab", "pvt_small", 0.1, 120),
    "pvt_v2_b1": ("timm", "pvt_v2_b1", 0.1, 120),
    "swin_tiny": ("timm", "swin_tiny_patch4_window7_224", 0.2, 120),
    "local_vit_tiny": ("vitlab", "local_vit_tiny", 0.1, 150),
}

EXTRA_BLOCKS = {"": "", "attention": "_extra_attention", "mlp": "_extra_mlp"}

Architecture = Annotated[str, Choices(tuple(ARCHITECTURES))]
ExtraBlock = Annotated[str, Choices(tuple(EXTRA_BLOCKS))]


def context_broadcasting(
    size: Size = "tiny", part: PartName = "cb", position: Position = "", blocks: str = "", heads: OwnHeads = 0
) -> Recipe:
    """ViT-Ti, S or B with CB or one of the alternatives on ImageNet-1K, with the training settings of the paper.

    Source: CB, Tables 1 to 5, Fig. 9, supplement Tables S5 and S6. CB† is `blocks='all'`. Tables 4, S5 and S6 put the
    modules into all layers: give `blocks='all'` with a `position`. The heads of Fig. 9 are not printed.
    Hardware: 8 V100.
    Runtime: not published.
    Expected: top-1 with CB 73.4 (tiny), 80.8 (small), 82.1 (base); CB† 73.2, 80.5, 82.0; CB_S 73.5, 80.4, 82.1; small
        with the uniform heads A 80.1, B 80.3, C 80.6, SE 80.3, gate 80.4, hybrid 80.5 (S5; 80.3 in S6), CB in all
        layers at front 79.9, mid 80.5, end 80.5, attention 80.1, both 80.1. Hybrid at both diverged.
    Command: torchrun --nproc-per-node 8 -m vitlab train "context_broadcasting(size='small', part='cb_s')"

    Args:
        size: `tiny`, `small` or `base`.
        part: short name of a part, as in `deit_imagenet`; '' for that recipe, the paper's baseline.
        position: `front`, `mid` or `end` of the MLP, `attention`, or `both` (end and attention); '' for the default of
            the part.
        blocks: which blocks; '' for the default of the part (CB: the upper half; others: all).
        heads: attention heads, for Fig. 9; 0 for the default of the model.

    >>> context_broadcasting().augment.repeats, context_broadcasting("base").optimizer.warmup_epochs
    (1, 10)
    """
    calls = parts(part, position, blocks)
    return _with_changes(size, "", calls, {"num_heads": heads}) if calls else deit_imagenet(size, heads=heads)


def context_broadcasting_distilled(size: Size = "tiny", part: PartName = "cb", kind: Distillation = "hard") -> Recipe:
    """Distilled ViT-Ti, S or B with CB or CB_S on ImageNet-1K.

    Source: CB, Table S12 (supplement Table S1); the teacher is DeiT's. The paper does not say whether labels are hard
    or soft: hard, which DeiT prefers, is our choice.
    Hardware: 8 V100.
    Runtime: not published.
    Expected: top-1 with CB 74.7 (tiny), 81.3 (small), 83.5 (base); CB_S 75.3, 81.6, 83.6.
    Command: torchrun --nproc-per-node 8 -m vitlab train "context_broadcasting_distilled(size='tiny', part='cb_s')"

    Args:
        size: `tiny`, `small` or `base`.
        part: short name of a part; '' for `deit_distilled`, the paper's baseline.
        kind: `hard` or `soft`.
    """
    if not part:
        return deit_distilled(size, kind)
    recipe = _with_changes(size, "_distilled", parts(part), {})
    return replace(recipe, objective=replace(choose("kind of distillation", kind, DISTILLATION), teacher=TEACHER))


def context_broadcasting_architectures(
    architecture: Architecture = "pit_base", part: PartName = "cb", repeated: bool = True
) -> Recipe:
    """PiT-B, Mixer-S/16, PVT-S, PVTv2-B1, Swin-Ti or LocalViT-Ti with CB and DeiT's training settings.

    Source: CB, Tables 11 and S14: 300 epochs for PiT and Mixer (with DeiT's settings according to the paper, with and
    without CB), 120 for PVT, PVTv2 and Swin, 150 for LocalViT. Which blocks get CB, the drop path, and DeiT's settings
    for all six are our choices.
    Hardware: 8 V100.
    Runtime: not published.
    Expected: top-1 plain and with CB: PiT-B 82.0, 82.6; Mixer-S/16 74.3, 74.9; PVT-S 76.7, 77.3; PVTv2-B1 76.4, 76.5;
        Swin-Ti 79.3, 79.5; LocalViT-Ti 69.4, 72.5.
    Command: torchrun --nproc-per-node 8 -m vitlab train "context_broadcasting_architectures(architecture='swin_tiny')"

    Args:
        architecture: `pit_base`, `mixer_small`, `pvt_small`, `pvt_v2_b1`, `swin_tiny` or `local_vit_tiny`.
        part: short name of a part; '' for the plain model.
        repeated: repeated augmentation, the same with and without the part.
    """
    source, name, drop_path, epochs = choose("architecture", architecture, ARCHITECTURES)
    text = model(source, name, {"drop_path_rate": drop_path}, *parts(part))
    return deit_recipe(text, repeated=repeated, epochs=epochs)


def extra_block(extra: ExtraBlock = "attention", repeated: bool = True) -> Recipe:
    """The ViT of eight layers with one extra block, attention or MLP, of nearly equal size.

    Source: CB, Fig. 3; 300 epochs on ImageNet-1K. The width is not published: that of ViT-S is our choice.
    Hardware: 8 V100.
    Runtime: not published.
    Expected: None (curves only): attention ends with the lower training loss and the higher accuracy.
    Command: torchrun --nproc-per-node 8 -m vitlab train "extra_block(extra='mlp')"

    Args:
        extra: `attention`, `mlp`, or '' for none.
        repeated: repeated augmentation.
    """
    name = f"vit_small_depth8{choose('extra block', extra, EXTRA_BLOCKS)}"
    return deit_recipe(model("vitlab", name, {"drop_path_rate": 0.1}), repeated=repeated)


def context_broadcasting_cifar100(part: PartName = "cb", repeated: bool = False) -> Recipe:
    """ViT-S on CIFAR-100 from scratch, with DeiT's training settings.

    Source: CB, Table S15 (supplement Table S4). Resolution, patches and epochs are not published: 32×32, 4×4 and 300
    are our choice, and so is a padded crop instead of a resized one.
    Hardware: not published.
    Runtime: not published.
    Expected: top-1 of 75.43 with CB, 74.73 without.
    Command: vitlab train "context_broadcasting_cifar100(part='cb')"

    Args:
        part: short name of a part; '' for the plain model.
        repeated: repeated augmentation; off for both models is our choice.
    """
    settings = {"img_size": 32, "patch_size": 4, "num_classes": 100, "drop_path_rate": 0.1}
    recipe = deit_recipe(model("timm", "deit_small_patch16_224", settings, *parts(part)), repeated=repeated)
    return replace(recipe, data="cifar100", image_size=(32, 32), augment=replace(recipe.augment, crop="pad"))


def _with_changes(size: str, distilled: str, calls: tuple[PartCall, ...], settings: dict[str, Any]) -> Recipe:
    """Returns DeiT with parts and the changes that the paper makes for them, which depend on the size."""
    name = f"deit_{choose('size', size, SIZES)}{distilled}_patch16_224"
    base = size == "base"
    text = model("timm", name, {**settings, "drop_path_rate": 0.2 if base else 0.1}, *calls)
    return deit_recipe(text, repeated=base, warmup_epochs=10 if base else 5)
