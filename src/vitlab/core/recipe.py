"""A training run as data: frozen, comparable, printable, and changed only by making another one."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_type_hints

from vitlab.core.errors import VitlabError, unknown


@dataclass(frozen=True)
class Augment:
    """What happens to training images, in this order.

    Args:
        crop: `pad` (pad, then crop at random: small images), `resized` (random resized crop: large ones), `none`.
        flip: probability of a horizontal flip.
        randaugment: timm's text for it, such as `rand-m9-n2-mstd0.5`; empty for none.
        erasing: probability of erasing a random rectangle.
        mixup, cutmix: their α; 0 for none. One of them is drawn for each batch.
        mix_probability: share of the batches that are mixed at all.
        switch_probability: share of the mixed batches that get CutMix where both are on.
        repeats: how often each image stands in an epoch (repeated augmentation); the epoch keeps its length.
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
    """AdamW (or SGD) with warm-up and cosine decay, stepped with every batch.

    Args:
        lr: learning rate at the recipe's batch size.
        warmup_epochs: linear from `warmup_lr`; they count towards the epochs.
        clip: largest gradient norm; 0 for none.
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
    clip: float = 0.0
    sam: float = 0.0


@dataclass(frozen=True)
class Objective:
    """What is minimised.

    Args:
        smoothing: label smoothing.
        diversification: weight λ of ADL on recorded attention; 0 for none.
        tau, diversification_form: ADL's threshold, and whose formula it is.
        distillation: `hard` or `soft` distillation from `teacher`, as DeiT does it; empty for none.
        teacher: a model expression.
        distillation_weight, temperature: of the distillation.
    """

    smoothing: float = 0.1
    diversification: float = 0.0
    tau: float = 2.0
    diversification_form: Literal["paper", "released"] = "paper"
    distillation: Literal["", "hard", "soft"] = ""
    teacher: str = ""
    distillation_weight: float = 0.5
    temperature: float = 3.0


@dataclass(frozen=True)
class Recipe:
    """A training run.

    Args:
        model: a model expression; drop path and the like are settings of the model.
        data: a data expression such as `scenes`, `cifar100` or `imagenet(fraction=0.1)`.
        image_size: height and width that the model eats.
        epochs, batch_size: as they say; the batch is the global one, over all processes and accumulation steps.
        ema: decay of the moving average of the weights; 0 for none.
        precision: `float32`, or autocast in `bfloat16` or `float16`.
        compile: whether the step is compiled (and, on CUDA, captured in a graph where that is possible); on a CPU only
            where it is asked for: `--set compile=True`, or `compile_on_cpu=True` in Python.
        accumulate: batches are cut into that many pieces.
        snapshots: epochs after which the weights are kept for good; the Hessian and landscape instruments want early
            and late ones. Where there are any, the initial weights are kept too, as epoch 0, for `trajectory`.
        checkpoint_every: steps between checkpoints; 0 for one at the end of an epoch when a minute has passed.
        evaluate_every: epochs between evaluations; the last epoch is always evaluated.
        log_every: steps between rows of `metrics.jsonl` beside the one of each epoch; 0 for none.
        sharded: `fully_shard` instead of DDP, for models that do not fit one device.
    """

    model: str
    data: str
    image_size: tuple[int, int] = (224, 224)
    epochs: int = 300
    batch_size: int = 1024
    augment: Augment = field(default_factory=Augment)
    optimizer: Optimizer = field(default_factory=Optimizer)
    objective: Objective = field(default_factory=Objective)
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
        """Refuse what no run can do."""
        for name in ("epochs", "batch_size", "accumulate", "evaluate_every"):
            if getattr(self, name) < 1:
                raise VitlabError(f"{name}={getattr(self, name)!r} should be at least 1")
        if self.batch_size % self.accumulate:
            raise VitlabError(
                f"batch_size={self.batch_size} cannot be cut into accumulate={self.accumulate} equal pieces"
            )


def change(recipe: Recipe, settings: Mapping[str, Any] | Sequence[str]) -> Recipe:
    """The same recipe with some settings changed; dots reach into its groups.

    Args:
        recipe: where to start from.
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
        raise VitlabError(f"{text!r} is no setting; write key=value, for example optimizer.lr=0.001")
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
            raise VitlabError(f"{key!r}: {path[0]} has no settings of its own")
        return dataclasses.replace(data, **{path[0]: _replace(old, path[1:], value, key)})
    return dataclasses.replace(data, **{path[0]: _fitting(value, old, get_type_hints(type(data))[path[0]], key)})


def _fitting(value: Any, old: Any, hint: Any, key: str) -> Any:
    """The value, if it is of the right kind."""
    choices = get_args(hint) if str(hint).startswith("typing.Literal") else ()
    if choices and value not in choices:
        raise unknown(f"{key}", value, [repr(choice) for choice in choices])
    if dataclasses.is_dataclass(old):
        names = ", ".join(item.name for item in dataclasses.fields(old))
        raise VitlabError(f"{key!r} is a group; set one of: {names}")
    if isinstance(old, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(old, tuple) and isinstance(value, (list, tuple)):
        return _fitting_tuple(value, get_args(hint), key)
    if type(value) is not type(old):
        raise VitlabError(f"{key}={value!r} should be {type(old).__name__}, like {old!r}")
    return value


def _fitting_tuple(values: Sequence[Any], kinds: tuple[Any, ...], key: str) -> tuple[Any, ...]:
    many = kinds[-1] is Ellipsis
    right = all(type(value) is kinds[0] or (kinds[0] is float and type(value) is int) for value in values)
    if not right or not (many or len(values) == len(kinds)):
        count = "any number" if many else len(kinds)
        raise VitlabError(f"{key}={tuple(values)!r} should be {count} of {kinds[0].__name__}")
    return tuple(kinds[0](value) for value in values)


def stored_recipe(data: Mapping[str, Any]) -> Recipe:
    """The recipe that JSON holds (`dataclasses.asdict`); settings that this version does not know are left out.

    >>> stored_recipe({"model": "timm/vit_tiny_patch16_224", "data": "scenes", "augment": {"flip": 0.0}}).augment.flip
    0.0
    """
    recipe = _from_json(Recipe, data)
    if not isinstance(recipe, Recipe):
        raise VitlabError(f"expected a recipe as names and values, found {type(data).__name__}")
    return recipe


def _from_json(kind: Any, data: Any) -> Any:
    if isinstance(data, list):
        return tuple(data)
    if not dataclasses.is_dataclass(kind) or not isinstance(data, Mapping):
        return data
    hints = get_type_hints(kind)
    known = [item.name for item in dataclasses.fields(kind) if item.name in data]
    return kind(**{name: _from_json(hints[name], data[name]) for name in known})  # type: ignore[operator]
