"""Recipes: the settings of a training run as frozen dataclasses."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_type_hints

from vitlab.core.errors import VitlabError, unknown


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
    flip: float = 0.5
    randaugment: str = ""
    erasing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_probability: float = 1.0
    switch_probability: float = 0.5
    repeats: int = 1
    patches: bool = False


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
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    momentum: float = 0.9
    weight_decay: float = 0.05
    warmup_epochs: float = 5
    warmup_lr: float = 1e-6
    min_lr: float = 1e-5
    schedule: Literal["cosine", "poly", "step"] = "cosine"
    power: float = 1.0
    milestones: tuple[int, ...] = ()
    layer_decay: float = 1.0
    head_lr: float = 1.0
    clip: float = 0.0
    sam: float = 0.0

    def __post_init__(self) -> None:
        """Raise an error for invalid values."""
        if not 0 < self.layer_decay <= 1:
            raise VitlabError(f"invalid layer_decay={self.layer_decay!r}; expected above 0 and at most 1")
        for name in ("head_lr", "power"):
            if not getattr(self, name) > 0:
                raise VitlabError(f"invalid {name}={getattr(self, name)!r}; expected above 0")


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

    smoothing: float = 0.1
    diversification: float = 0.0
    tau: float = 2.0
    diversification_form: Literal["paper", "released"] = "paper"
    distillation: Literal["", "hard", "soft"] = ""
    teacher: str = ""
    distillation_weight: float = 0.5
    temperature: float = 3.0
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Segmentation:
    """Settings of semantic segmentation.

    Args:
        scale: range of the random scale of training images, before a random crop of the recipe's `image_size`.
        jitter: strength of the random change of brightness, contrast and saturation; 0 for none.
        ignore: the label of pixels that neither loss nor metric count.
        auxiliary_weight: weight of the auxiliary head's loss, if the model has one.
        inference: `whole` images, or a `slide`: overlapping windows of the recipe's `image_size`.
        stride: distance of the windows, in pixels.
    """

    scale: tuple[float, float] = (0.5, 2.0)
    jitter: float = 0.25
    ignore: int = 255
    auxiliary_weight: float = 0.4
    inference: Literal["whole", "slide"] = "whole"
    stride: tuple[int, int] = (341, 341)


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

    sides: tuple[int, ...] = ()
    longest: int = 1333
    score: float = 0.05
    predictions: int = 100


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
        log_every: steps between rows of `metrics.jsonl`, in addition to one row per epoch; 0 for none.
        sharded: use `fully_shard` instead of DDP, for models that do not fit on one device.
    """

    model: str
    data: str
    task: Literal["classification", "segmentation", "detection", "vqa"] = "classification"
    image_size: tuple[int, int] = (224, 224)
    epochs: int = 300
    steps_per_epoch: int = 0
    batch_size: int = 1024
    augment: Augment = field(default_factory=Augment)
    optimizer: Optimizer = field(default_factory=Optimizer)
    objective: Objective = field(default_factory=Objective)
    segmentation: Segmentation = field(default_factory=Segmentation)
    detection: Detection = field(default_factory=Detection)
    ema: float = 0.0
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    compile: bool = False
    accumulate: int = 1
    snapshots: tuple[int, ...] = ()
    checkpoint_every: int = 0
    evaluate_every: int = 1
    log_every: int = 0
    sharded: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise an error for invalid values."""
        for name in ("epochs", "batch_size", "accumulate", "evaluate_every"):
            if getattr(self, name) < 1:
                raise VitlabError(f"invalid {name}={getattr(self, name)!r}; expected at least 1")
        if self.steps_per_epoch < 0:
            raise VitlabError(f"invalid steps_per_epoch={self.steps_per_epoch!r}; expected at least 0")
        if self.batch_size % self.accumulate:
            raise VitlabError(
                f"batch_size={self.batch_size} cannot be divided equally into accumulate={self.accumulate} steps; "
                "change one of them"
            )


def change(recipe: Recipe, settings: Mapping[str, Any] | Sequence[str]) -> Recipe:
    """Returns a copy of the recipe with changed settings; dots address the settings of a group.

    Args:
        recipe: the recipe to copy.
        settings: `{"optimizer.lr": 1e-4}`, or `["optimizer.lr=1e-4"]` as on the command line.

    >>> change(Recipe("timm/vit_tiny_patch16_224", "scenes"), ["optimizer.lr=0.5", "epochs=3"]).optimizer.lr
    0.5
    """
    if not isinstance(settings, Mapping):
        settings = dict(_read_setting(text) for text in settings)
    for key, value in settings.items():
        recipe = _replace(recipe, key.split("."), value, key)
    return recipe


def _read_setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise VitlabError(f"invalid setting {text!r}; expected key=value, for example optimizer.lr=0.001")
    try:
        return key.strip(), ast.literal_eval(value.strip())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return key.strip(), value.strip()


def _replace(data: Any, path: list[str], value: Any, key: str) -> Any:
    names = [item.name for item in dataclasses.fields(data)]
    if path[0] not in names:
        raise unknown("setting", key, names)
    old = getattr(data, path[0])
    if len(path) > 1:
        if not dataclasses.is_dataclass(old):
            raise VitlabError(f"invalid setting {key!r}: {path[0]} is not a group; set {path[0]}=value")
        return dataclasses.replace(data, **{path[0]: _replace(old, path[1:], value, key)})
    return dataclasses.replace(data, **{path[0]: _checked(value, old, get_type_hints(type(data))[path[0]], key)})


def _checked(value: Any, old: Any, hint: Any, key: str) -> Any:
    """Returns the value, converted if needed; raises an error if it has the wrong type."""
    choices = get_args(hint) if str(hint).startswith("typing.Literal") else ()
    if choices and value not in choices:
        raise unknown(f"{key}", value, [repr(choice) for choice in choices])
    if dataclasses.is_dataclass(old):
        names = ", ".join(item.name for item in dataclasses.fields(old))
        raise VitlabError(f"invalid setting {key!r}: it is a group; set one of its settings: {names}")
    if isinstance(old, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is float and type(value) is float:  # the old value may be an int: warmup_epochs=5
        return value
    if isinstance(old, tuple) and isinstance(value, (list, tuple)):
        return _checked_tuple(value, get_args(hint), key)
    if type(value) is not type(old):
        raise VitlabError(f"invalid {key}={value!r}; expected {type(old).__name__}, for example {old!r}")
    return value


def _checked_tuple(values: Sequence[Any], kinds: tuple[Any, ...], key: str) -> tuple[Any, ...]:
    any_length = kinds[-1] is Ellipsis
    valid = all(type(value) is kinds[0] or (kinds[0] is float and type(value) is int) for value in values)
    if not valid or not (any_length or len(values) == len(kinds)):
        count = "any number" if any_length else len(kinds)
        raise VitlabError(f"invalid {key}={tuple(values)!r}; expected {count} of {kinds[0].__name__}")
    return tuple(kinds[0](value) for value in values)


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
