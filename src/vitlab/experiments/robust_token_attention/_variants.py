"""The compared variants of TAPADL and their models at each scale, as jobs.

- `smoke`: a ViT of two layers on scenes.
- `small`: ViT-Ti on CIFAR-100, 60 epochs; the runs of the condition `tapadl` of the evidence on CIFAR-100.
- `released`: the published weights, in `weights/` below the data root: `fan_hybrid_base.pth.tar` of FAN,
  `tapadl_fan_base.pth.tar` and `tapadl_rvt_base.pth.tar` of TAPADL, `82.6_T2T_ViTt_24.pth.tar` of T2T-ViT; timm's
  DeiT-B, Swin-B, ConvNeXt-B and ConViT-B. TAP and ADL alone, and both in DeiT-B and Swin-B, were not released. The
  released weights of RVT-B were pretrained on ImageNet-22k and are not those of the tables: RVT-B has no baseline here.
- `full`: the recipe `robust_token_attention`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vitlab.core.experiment import Job, Scale
from vitlab.core.expressions import call_text


@dataclass(frozen=True)
class Variant:
    """A model with parts and an objective.

    Args:
        arm: its name in jobs.
        parts: its parts, as in a model expression.
        changes: its objective, as changes of a recipe.
        settings: arguments of the recipe `robust_token_attention`.
    """

    arm: str
    parts: str = ""
    changes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def pooled(arm: str, part: str, **settings: Any) -> Variant:
    """Returns a variant with a part in place of TAP and without ADL."""
    return Variant(arm, f" | {part}", (), {"diversification": 0.0, **settings})


def diversified(arm: str, weight: float = 1.0, tau: float = 2.0) -> Variant:
    """Returns a variant with ADL in its released form, without TAP."""
    settings = {"pooling": "", "diversification": weight, "tau": tau}
    return Variant(arm, "", _adl(weight, tau), settings)


def _adl(weight: float, tau: float) -> tuple[str, ...]:
    """λ and τ of ADL; the released form, which gave the paper's numbers."""
    threshold = () if tau == 2 else (f"objective.tau={tau}",)
    return (f"objective.diversification={weight}", "objective.diversification_form=released", *threshold)


_POOLING = "TokenAwarePooling(blocks='all')"
PLAIN = Variant("plain", settings={"pooling": "", "diversification": 0.0})
TAP = pooled("tap", _POOLING)
ADL = diversified("adl")
TAP_ADL = Variant("tap_adl", f" | {_POOLING}", _adl(1.0, 2.0))
FOUR = (PLAIN, TAP, ADL, TAP_ADL)
#: How the paper names them.
TITLES = {"plain": "", "tap": "TAP", "adl": "ADL", "tap_adl": "TAP & ADL"}

#: Scale -> recipe, model, changes, seeds, and the cost of a run.
_TRAINED: dict[str, tuple[str, str, tuple[str, ...], Sequence[int], dict[str, Any]]] = {
    "smoke": (
        "quick(images=96, epochs=1)",
        "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)",
        (),
        range(1),
        {},
    ),
    "small": (
        "vit_tiny_cifar100",
        "timm/vit_tiny_patch16_224(img_size=32, patch_size=4, num_classes=100, num_heads=3, drop_path_rate=0.1)",
        ("epochs=60", "evaluate_every=10"),
        range(100, 105),
        {"needs": ("cifar-100-binary",), "gpu_minutes": 3.0, "gigabytes": 0.2},
    ),
}
#: Estimates of ours for one GPU: 300 epochs of ImageNet at about 900 images a second.
_FULL_COST = {"needs": ("imagenet",), "gpu_minutes": 7000.0, "gigabytes": 150.0}
_FULL_SEEDS = range(3)

_WEIGHTS = "{root}/weights"
#: Base and variant -> released model, and its file below the data root.
_RELEASED: dict[tuple[str, str], tuple[str, str]] = {
    ("fan", "plain"): (
        f"vitlab/fan_base_hybrid(weights='{_WEIGHTS}/fan_hybrid_base.pth.tar')",
        "weights/fan_hybrid_base.pth.tar",
    ),
    ("fan", "tap_adl"): (
        f"vitlab/fan_base_hybrid(weights='{_WEIGHTS}/tapadl_fan_base.pth.tar') | TokenAwarePooling(branches=4)",
        "weights/tapadl_fan_base.pth.tar",
    ),
    # The released code has masks in 5 blocks and the convolutional MLP: 89.4 M parameters, not the 92.1 M of Table 2.
    ("rvt", "tap_adl"): (
        f"vitlab/rvt_base_plus_released(conv_mlp=True, weights='{_WEIGHTS}/tapadl_rvt_base.pth.tar')"
        " | TokenAwarePooling(branches=4)",
        "weights/tapadl_rvt_base.pth.tar",
    ),
    ("quoted", "convnext"): ("timm/convnext_base.fb_in1k(pretrained=True)", ""),
    ("quoted", "convit"): ("timm/convit_base.fb_in1k(pretrained=True)", ""),
    ("quoted", "swin_b"): ("timm/swin_base_patch4_window7_224.ms_in1k(pretrained=True)", ""),
    ("quoted", "t2t"): (
        f"vitlab/t2t_vit_t_24(weights='{_WEIGHTS}/82.6_T2T_ViTt_24.pth.tar')",
        "weights/82.6_T2T_ViTt_24.pth.tar",
    ),
    ("deit", "plain"): ("timm/deit_base_patch16_224(pretrained=True)", ""),
    ("swin", "plain"): ("timm/swin_base_patch4_window7_224.ms_in1k(pretrained=True)", ""),
}


@dataclass(frozen=True)
class Measured:
    """A procedure at one scale.

    Args:
        procedure: as in `Job`.
        images, repeats, data: as in `Job`.
        needs: files below the data root, in addition to those of the model.
        gigabytes: their size.
    """

    procedure: str
    images: int | None = None
    repeats: int = 1
    data: str | None = None
    needs: tuple[str, ...] = ()
    gigabytes: float = 0.0


def jobs(
    scale: Scale,
    variants: Sequence[Variant],
    procedures: Sequence[Mapping[str, Measured]],
    *,
    base: str = "fan",
    prefix: str = "",
    small_model: str = "",
    seeds: int = 5,
) -> list[Job]:
    """Returns the jobs of variants of a base model.

    Args:
        scale: the scale.
        variants: the variants.
        procedures: what to measure, by scale; a procedure without this scale is omitted.
        base: the base of `released` and `full`: `fan`, `rvt`, `deit` or `swin`; `quoted` at `released` only.
        prefix: is put before the names of the arms.
        small_model: model of `small` instead of ViT-Ti.
        seeds: largest number of seeds.
    """
    return [
        _job(source, f"{prefix}{variant.arm}", each[scale])
        for variant in variants
        for source in _sources(scale, variant, base, small_model)[:seeds]
        for each in procedures
        if scale in each
    ]


def _sources(scale: Scale, variant: Variant, base: str, small_model: str) -> list[dict[str, Any]]:
    """The fields of jobs that name the model, one for each seed; empty if there is none at this scale."""
    if scale == "released":
        if (base, variant.arm) not in _RELEASED:
            return []
        model, file = _RELEASED[base, variant.arm]
        return [{"model": model, "needs": (file,) if file else (), "gpu_minutes": 30.0}]
    if scale == "full":
        recipe = call_text("robust_token_attention", {"base": base, **variant.settings})
        return [{"recipe": recipe, "seed": seed, **_FULL_COST} for seed in _FULL_SEEDS]
    recipe, model, changes, seeds, cost = _TRAINED[scale]
    if scale == "small" and small_model:
        model = small_model
    changes = (f"model={model}{variant.parts}", *changes, *variant.changes)
    return [{"recipe": recipe, "changes": changes, "seed": seed, **cost} for seed in seeds]


def _job(source: Mapping[str, Any], arm: str, measured: Measured) -> Job:
    # The sizes of different needs are added: a benchmark counts its own files only.
    more = {
        "needs": tuple(dict.fromkeys((*source.get("needs", ()), *measured.needs))),
        "gigabytes": measured.gigabytes or source.get("gigabytes", 0.0),
    }
    given = {"images": measured.images, "repeats": measured.repeats, "data": measured.data}
    return Job(arm, measured.procedure, **{**source, **given, **more})
