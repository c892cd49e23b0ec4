"""The training runs of "Robustifying Token Attention for Vision Transformers" (TAPADL).

Batch 2048, learning rate 2e-3 and 300 epochs for all models (TAPADL, Sec. 4.1); the other settings are those of each
model. Code is public for FAN and RVT only: for DeiT-B and Swin-B everything except batch, rate and epochs is our
choice, based on the recipes of DeiT and Swin. ADL on DeiT-B includes the row and column of the class token: our choice.

RVT is trained with patch augmentation (`augment.patches`): each 16×16 patch is cropped (85 to 100 % of its area), gets
noise (standard deviation 0.01 in normalised units) and is mirrored, each with probability 0.1, and is clamped to valid
pixels. A step computes cross entropy and ADL on the clean batch and cross entropy only on the augmented copy, and adds
their gradients. The released code does the same in two backward passes, the augmented copy first; only the running
statistics of BatchNorm depend on that order. FAN has no patch augmentation here: the released option for it does not
run with ADL.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from vitlab.core.bounds import Choices, Range, Weight
from vitlab.core.expressions import PartCall
from vitlab.core.recipe import Recipe
from vitlab.recipes._parts import choose, model
from vitlab.recipes.deit_imagenet import deit_recipe

__all__ = ["robust_token_attention"]

BATCH = 2048

#: Name -> source, model, drop path.
MODELS: dict[str, tuple[str, str, float]] = {
    "fan": ("vitlab", "fan_base_hybrid", 0.35),
    "rvt": ("vitlab", "rvt_base_plus", 0.1),
    "deit": ("timm", "deit_base_patch16_224", 0.1),
    "swin": ("timm", "swin_base_patch4_window7_224", 0.5),
}

#: TAP and the alternatives of Table 1.
POOLINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("", {}),
    "tap": ("TokenAwarePooling", {}),
    "multi_kernel": ("MultiKernelPooling", {}),
    "average_3": ("AveragePooling", {"kernel": 3}),
    "average_5": ("AveragePooling", {"kernel": 5}),
    "convolution_3": ("ConvolutionPooling", {"kernel": 3}),
    "convolution_5": ("ConvolutionPooling", {"kernel": 5}),
}

#: Shallow is the first 30 % of the layers, middle and deep the other 70 % (TAPADL, Sec. 5.3).
ALLOCATIONS = {"all": "all", "shallow": ":30%", "middle_deep": "30%:"}

FORMS: dict[str, Literal["paper", "released"]] = {"paper": "paper", "released": "released"}


def robust_token_attention(
    base: Annotated[str, Choices(tuple(MODELS))] = "fan",
    pooling: Annotated[str, Choices(tuple(POOLINGS))] = "tap",
    branches: Annotated[int, Range(1, 64)] = 4,
    allocation: Annotated[str, Choices(tuple(ALLOCATIONS))] = "all",
    diversification: Weight = 1.0,
    tau: Weight = 2.0,
    form: Annotated[str, Choices(tuple(FORMS))] = "released",
) -> Recipe:
    """FAN-B-Hybrid, RVT-B, DeiT-B or Swin-B with TAP, ADL, both or neither on ImageNet-1K.

    The ablations: K from 1 (the baseline) and λ in 0.001, 0.01, 0.1, 1, 10 (Fig. 7), τ in 0, 1, 2, 3, 5 (Table 7),
    allocation (Table 6), alternatives to TAP (Table 1); all with FAN, each part without the other.

    Source: TAPADL, Tables 1, 2, 5, 6, 7 and Fig. 7; FAN's and RVT's released settings.
    Hardware: not published; FAN's own command takes 64 GPUs, RVT's 32.
    Runtime: not published.
    Expected: top-1 plain, TAP, ADL, both: FAN 83.9, 84.3, 84.0, 84.3 (mCE 46.1, 44.9, 44.4, 43.7); RVT 82.6, 83.0,
        82.6, 83.1 (46.8, 45.5, 45.2, 44.7). Plain and both: DeiT-B 82.0, 82.4 (48.5, 46.6); Swin-B 83.4, 84.0
        (54.4, 51.9).
    Command: torchrun --nproc-per-node 8 -m vitlab train "robust_token_attention(base='fan', diversification=0.0)"

    Args:
        base: `fan`, `rvt` (with scaled attention in all blocks, as the paper counts), `deit` or `swin`.
        pooling: `tap`, `multi_kernel`, `average_3`, `average_5`, `convolution_3`, `convolution_5`, or '' for none.
        branches: K of TAP and of its multi-kernel form.
        allocation: `all`, `shallow` or `middle_deep`.
        diversification: weight λ of ADL; 0 for none.
        tau: threshold τ of ADL.
        form: ADL as in the `released` code, which gave the paper's numbers, or as defined in the `paper`.

    >>> robust_token_attention(diversification=0.0).model
    "vitlab/fan_base_hybrid(drop_path_rate=0.35) | TokenAwarePooling(branches=4, blocks='all')"
    """
    source, name, drop_path = choose("base", base, MODELS)
    text = model(source, name, {"drop_path_rate": drop_path}, *_poolings(pooling, branches, allocation))
    recipe = _SETTINGS[base](text)
    objective = replace(
        recipe.objective,
        diversification=float(diversification),
        tau=float(tau),
        diversification_form=choose("form of ADL", form, FORMS),
    )
    return replace(recipe, objective=objective)


def _poolings(pooling: str, branches: int, allocation: str) -> tuple[PartCall, ...]:
    kind, settings = choose("pooling", pooling, POOLINGS)
    blocks = choose("allocation", allocation, ALLOCATIONS)
    if pooling in ("tap", "multi_kernel"):
        settings = {"branches": branches}
    return (PartCall(kind, settings, blocks=blocks),) if kind else ()


def _fan(text: str) -> Recipe:
    """FAN's released command with the batch and rate of TAPADL: 10 warm-up epochs, more erasing.

    The average of the weights has the decay of TAPADL and DeiT, 0.99996; FAN's own command has 0.99992.
    """
    recipe = deit_recipe(text, repeated=False, batch_size=BATCH, warmup_epochs=10)
    return replace(
        recipe,
        augment=replace(recipe.augment, erasing=0.3),
        optimizer=replace(recipe.optimizer, min_lr=1e-6),
    )


def _rvt(text: str) -> Recipe:
    """DeiT's settings, on which RVT's code is based, with patch augmentation and without autocast."""
    recipe = deit_recipe(text, batch_size=BATCH)
    return replace(recipe, augment=replace(recipe.augment, patches=True), precision="float32")


def _deit(text: str) -> Recipe:
    """DeiT's own recipe. ADL includes the row of the class token: our choice."""
    return deit_recipe(text, batch_size=BATCH)


def _swin(text: str) -> Recipe:
    """Swin's own recipe: 20 warm-up epochs, clipping at 1, neither repeated augmentation nor an average of weights."""
    recipe = deit_recipe(text, repeated=False, batch_size=BATCH, warmup_epochs=20)
    return replace(recipe, optimizer=replace(recipe.optimizer, clip=1.0), ema=0.0)


_SETTINGS = {"fan": _fan, "rvt": _rvt, "deit": _deit, "swin": _swin}
