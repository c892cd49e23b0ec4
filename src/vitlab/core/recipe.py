"""Recipes: the settings of a training run as frozen dataclasses."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_type_hints

from vitlab.core.annotations import convert, shown
from vitlab.core.bounds import Positive, PositiveShare, Range, Rate, Seed, Share, Weight
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import parse_model
from vitlab.core.settings import check_fields, check_value
from vitlab.core.signatures import settings_of


def _memory(images: int) -> str:
    return f"{images:,} images of 224x224 take {images * 224 * 224 * 12 / 1e9:,.0f} GB in one batch"


BatchSize = Annotated[int, Range(1, 262_144, cost=_memory)]
Epoch = Annotated[int, Range(0, 100_000)]
Pixels = Annotated[int, Range(1, 8192)]
Scale = Annotated[float, Range(0, 100, open_low=True)]
#: Sections of RandAugment's string: magnitude, operations per image, their probability, and the largest magnitude.
_RANDAUGMENT = {"m": Range(0, 30), "n": Range(1, 15), "p": Range(0, 1), "mmax": Range(1, 30)}
Steps = Annotated[int, Range(0, 10**9)]


@dataclass(frozen=True)
class Augment:
    """Augmentation of training images, in this order.

    Args:
        crop: `pad` (pad, then crop at random: small images), `resized` (random resized crop: large images), `none`.
        flip: probability of a horizontal flip.
        randaugment: RandAugment as a timm string, such as `rand-m9-n2-mstd0.5`; empty for none.
        erasing: probability of erasing a random rectangle.
        mixup, cutmix: their α; 0 for none. One of them is chosen for each batch.
        mix_probability: fraction of the batches that are mixed.
        switch_probability: fraction of the mixed batches that use CutMix if both are on.
        repeats: number of times an image is used in an epoch (repeated augmentation); the length of the epoch does not
            change.
        patches: RVT's augmentation of each 16×16 patch.
    """

    crop: Literal["pad", "resized", "none"] = "pad"
    flip: Share = 0.5
    randaugment: str = ""
    erasing: Share = 0.0
    mixup: Weight = 0.0
    cutmix: Weight = 0.0
    mix_probability: Share = 1.0
    switch_probability: Share = 0.5
    repeats: Annotated[int, Range(1, 100)] = 1
    patches: bool = False

    def __post_init__(self) -> None:
        """Raise an error for invalid values."""
        check_fields(self)
        _check_randaugment(self.randaugment)


@dataclass(frozen=True)
class Optimizer:
    """AdamW or SGD with warm-up and decay of the learning rate, updated every step.

    Args:
        lr: learning rate at the batch size of the recipe.
        warmup_epochs: epochs of linear warm-up from `warmup_lr`; included in the epochs of the recipe.
        schedule: decay after the warm-up: `cosine`, `poly` ((1 − t)^power, t the finished share of the run) or `step`
            (× 0.1 at each milestone, without `min_lr`).
        power: exponent of the `poly` schedule.
        milestones: epochs of the `step` schedule.
        layer_decay: factor of the learning rate from each block to the one before it; 1 for none.
        head_lr: factor of the learning rate of all parameters outside the backbone.
        clip: maximum gradient norm; 0 for no clipping.
        sam: radius ρ of sharpness-aware minimisation; 0 for none.
    """

    name: Literal["adamw", "sgd"] = "adamw"
    lr: Weight = 1e-3
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    momentum: Rate = 0.9
    weight_decay: Weight = 0.05
    warmup_epochs: Weight = 5
    warmup_lr: Weight = 1e-6
    min_lr: Weight = 1e-5
    schedule: Literal["cosine", "poly", "step"] = "cosine"
    power: Positive = 1.0
    milestones: tuple[Epoch, ...] = ()
    layer_decay: PositiveShare = 1.0
    head_lr: Positive = 1.0
    clip: Weight = 0.0
    sam: Weight = 0.0

    def __post_init__(self) -> None:
        """Raise an error for invalid values."""
        check_fields(self)


@dataclass(frozen=True)
class Objective:
    """The loss function.

    Args:
        smoothing: label smoothing.
        diversification: weight λ of ADL on the recorded attention; 0 for none.
        tau, diversification_form: threshold of ADL, and which of its two formulas is used.
        distillation: `hard` or `soft` distillation from `teacher`, as in DeiT; empty for none.
        teacher: a model expression.
        distillation_weight, temperature: weight and temperature of the distillation loss.
        extra: losses that extensions add, each with its settings: `("sparse(weight=0.1)",)`.
    """

    smoothing: Rate = 0.1
    diversification: Weight = 0.0
    tau: Weight = 2.0
    diversification_form: Literal["paper", "released"] = "paper"
    distillation: Literal["", "hard", "soft"] = ""
    teacher: str = ""
    distillation_weight: Share = 0.5
    temperature: Positive = 3.0
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise an error for invalid values."""
        check_fields(self)
        try:
            parse_model(self.teacher or "timm/none")
        except VitlabError as error:
            raise VitlabError(f"Objective(teacher={shown(self.teacher)}): {error}") from None


@dataclass(frozen=True)
class Segmentation:
    """Settings of semantic segmentation.

    Args:
        scale: range of the random scale of training images, before a random crop of the recipe's `image_size`.
        base_size: limits of the shorter and the longer side. Images are resized to the largest size within them, with
            their aspect ratio, before the random scale and before sliding windows; None for their own size.
        cat_max_ratio: a crop in which one class has this share of the labelled pixels or more is drawn again, up to ten
            times; 1 for any crop.
        jitter: strength of the random change of brightness, contrast and saturation; 0 for none.
        auxiliary_weight: weight of the auxiliary head's loss, if the model has one.
        inference: `whole` images, or a `slide`: overlapping windows of the recipe's `image_size`.
        stride: distance of the windows, in pixels, at most their size.
    """

    scale: tuple[Scale, Scale] = (0.5, 2.0)
    base_size: tuple[Pixels, Pixels] | None = None
    cat_max_ratio: PositiveShare = 1.0
    jitter: Share = 0.25
    auxiliary_weight: Weight = 0.4
    inference: Literal["whole", "slide"] = "whole"
    stride: tuple[Pixels, Pixels] = (341, 341)

    def __post_init__(self) -> None:
        """Raise an error for invalid values."""
        check_fields(self)
        if self.scale[0] > self.scale[1]:
            raise VitlabError(f"Segmentation(scale={self.scale!r}): expected (smallest, largest)")


@dataclass(frozen=True)
class Detection:
    """Settings of object detection and instance segmentation.

    Args:
        sides: lengths of the shorter side of training images, one chosen at random for each batch; empty for the
            recipe's `image_size`.
        longest: largest length of the longer side.
        score: smallest score of a prediction that the metric counts.
        predictions: largest number of predictions per image.
    """

    sides: tuple[Pixels, ...] = ()
    longest: Annotated[int, Range(1, 65_536)] = 1333
    score: Share = 0.05
    predictions: Annotated[int, Range(1, 100_000)] = 100

    def __post_init__(self) -> None:
        """Raise an error for invalid values."""
        check_fields(self)


@dataclass(frozen=True)
class Recipe:
    """A training run.

    Args:
        model: a model expression, including settings such as the drop path rate.
        data: a data expression such as `scenes`, `cifar100` or `imagenet(fraction=0.1)`.
        task: what the model is trained for.
        image_size: height and width of the model's input.
        epochs: number of epochs.
        steps_per_epoch: number of batches of an epoch; 0 for one pass over the training images.
        batch_size: images per step, over all processes and accumulation steps.
        ema: decay of the exponential moving average of the weights; 0 for none.
        precision: `float32`, or autocast in `bfloat16` or `float16`.
        compile: compile the training step (and capture it in a CUDA graph if possible). On a CPU the step is compiled
            only with `--set compile=True`, or `compile_on_cpu=True` in Python.
        accumulate: number of gradient accumulation steps per batch.
        snapshots: epochs after which the weights are saved permanently; the Hessian and landscape instruments need
            early and late weights. If there are any, the initial weights are saved as epoch 0, for `trajectory`.
        checkpoint_every: steps between checkpoints; 0 for checkpoints at the end of an epoch, at most one per minute.
        evaluate_every: epochs between evaluations; the last epoch is always evaluated.
        evaluate_images: number of test images (or questions) of an evaluation, at even distances; 0 for all.
        log_every: steps between rows of `metrics.jsonl`, in addition to one row per epoch; 0 for none.
        sharded: use `fully_shard` instead of DDP, for models that do not fit on one device.
    """

    model: str
    data: str
    task: Literal["classification", "segmentation", "detection", "vqa"] = "classification"
    image_size: tuple[Pixels, Pixels] = (224, 224)
    epochs: Annotated[int, Range(1, 100_000)] = 300
    steps_per_epoch: Steps = 0
    batch_size: BatchSize = 1024
    augment: Augment = field(default_factory=Augment)
    optimizer: Optimizer = field(default_factory=Optimizer)
    objective: Objective = field(default_factory=Objective)
    segmentation: Segmentation = field(default_factory=Segmentation)
    detection: Detection = field(default_factory=Detection)
    ema: Rate = 0.0
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    compile: bool = False
    accumulate: Annotated[int, Range(1, 65_536)] = 1
    snapshots: tuple[Epoch, ...] = ()
    checkpoint_every: Steps = 0
    evaluate_every: Annotated[int, Range(1, 10**6)] = 1
    evaluate_images: Annotated[int, Range(0, 10**9)] = 0
    log_every: Steps = 0
    sharded: bool = False
    seed: Seed = 0

    def __post_init__(self) -> None:
        """Raise an error for invalid values."""
        check_fields(self)
        if self.batch_size % self.accumulate:
            raise VitlabError(
                f"batch_size={self.batch_size} cannot be divided equally into accumulate={self.accumulate} steps; "
                "change one of them"
            )


def _check_randaugment(text: str) -> None:
    """Raise an error if a section of RandAugment's string is not known, or its number is out of range."""
    head, *sections = text.split("-") if text else ["rand"]
    if head != "rand":
        raise VitlabError(f"invalid RandAugment {text!r}; expected for example rand-m9-n2-mstd0.5-inc1")
    for section in sections:
        match = re.fullmatch(r"(mstd|mmax|inc|m|n|p|w|t)(.*)", section)
        if match is None:
            raise VitlabError(
                f"invalid section {section!r} of RandAugment {text!r}; expected m, n, p, mstd, mmax or inc and a number"
            )
        if match[1] in _RANDAUGMENT:
            number = float(match[2]) if re.fullmatch(r"\d+\.?\d*", match[2]) else -1.0
            if number not in _RANDAUGMENT[match[1]]:
                raise VitlabError(
                    f"invalid section {section!r} of RandAugment {text!r}; expected {match[1]} {_RANDAUGMENT[match[1]]}"
                )


def change(recipe: Recipe, settings: Mapping[str, Any] | Sequence[str]) -> Recipe:
    """Returns a copy of the recipe with changed settings; dots address the settings of a group.

    Args:
        recipe: the recipe to copy.
        settings: `{"optimizer.lr": 1e-4}`, or `["optimizer.lr=1e-4"]` as on the command line.

    >>> change(Recipe("timm/vit_tiny_patch16_224", "scenes"), ["optimizer.lr=0.5", "epochs=3"]).optimizer.lr
    0.5
    """
    check_value("", "settings", settings, Mapping | Sequence[str])
    if not isinstance(settings, Mapping):
        settings = dict(_read_setting(text) for text in settings)
    recipe = _replaced(recipe, settings)
    late = [epoch for epoch in recipe.snapshots if epoch > recipe.epochs]
    if late and "snapshots" in settings:  # those of the recipe may be later than a smaller number of epochs
        raise VitlabError(f"snapshots={recipe.snapshots!r}: expected epochs up to {recipe.epochs}, the last of the run")
    return recipe


def _read_setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise VitlabError(f"invalid setting {text!r}; expected key=value, for example optimizer.lr=0.001")
    try:
        return key.strip(), ast.literal_eval(value.strip())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return key.strip(), value.strip()


def _replaced(data: Any, settings: Mapping[str, Any], group: str = "") -> Any:
    """A copy with all settings at once: two of them may be valid only together."""
    names = [item.name for item in dataclasses.fields(data)]
    changes: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for path, value in settings.items():
        key, (name, dot, rest) = f"{group}{path}", str(path).partition(".")
        if name not in names:
            raise unknown("setting", key, names)
        is_group = dataclasses.is_dataclass(getattr(data, name))
        if dot and not is_group:
            raise VitlabError(f"invalid setting {key!r}: {name} is not a group; set {name}=value")
        if is_group and not dot:
            listed = ", ".join(item.name for item in dataclasses.fields(getattr(data, name)))
            raise VitlabError(f"invalid setting {key!r}: it is a group; set one of its settings: {listed}")
        if dot:
            inner.setdefault(name, {})[rest] = value
            continue
        annotation = next(each.annotation for each in settings_of(type(data)) if each.name == name)
        check_value("", key, value, annotation)
        changes[name] = convert(value, annotation)
    changes |= {name: _replaced(getattr(data, name), given, f"{group}{name}.") for name, given in inner.items()}
    return dataclasses.replace(data, **changes)


def stored_recipe(data: Mapping[str, Any]) -> Recipe:
    """Returns a recipe from JSON data (`dataclasses.asdict`); unknown settings are ignored.

    >>> stored_recipe({"model": "timm/vit_tiny_patch16_224", "data": "scenes", "augment": {"flip": 0.0}}).augment.flip
    0.0
    """
    recipe = _from_json(Recipe, data)
    if not isinstance(recipe, Recipe):
        raise VitlabError(f"invalid recipe: expected names and values, got {type(data).__name__}")
    return recipe


def _from_json(kind: Any, data: Any) -> Any:
    if isinstance(data, list):
        return tuple(data)
    if not dataclasses.is_dataclass(kind) or not isinstance(data, Mapping):
        return data
    hints = get_type_hints(kind)
    known = [item.name for item in dataclasses.fields(kind) if item.name in data]
    return kind(**{name: _from_json(hints[name], data[name]) for name in known})  # type: ignore[operator]
