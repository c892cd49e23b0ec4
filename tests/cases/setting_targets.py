"""Every setting of every instrument, stress test, part, data set, recipe and model, and arguments of the public
functions, each with a tiny run."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from transformers import ViltConfig, ViTConfig, ViTForImageClassification

import vitlab
from cases import redraw
from cases.published import Colours, fill
from cases.setting_mutations import Target
from cases.stress import scene_batches, scenes_model
from vitlab.core import plugins
from vitlab.core.batches import Batches
from vitlab.core.expressions import parse_call
from vitlab.core.recipe import change
from vitlab.core.signatures import Setting, settings_of
from vitlab.data import catalogue, question_catalogue, segmentation_sets
from vitlab.data.detection_sets import open_detection
from vitlab.data.scenes import MEAN, STD, draw_scenes
from vitlab.inputs.detection import detection_parts
from vitlab.inputs.questions import question_parts
from vitlab.models._library_settings import configuration_settings, torchvision_settings
from vitlab.models._settings import COMMON, architecture
from vitlab.models._timm_settings import accepts, constructor_settings
from vitlab.runner import run_all

VILT = (
    "vitlab/vilt(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,"
    " max_position_embeddings=8, image_size=16, patch_size=8, vocab_size=40, num_labels=29)"
)
DETECTOR = (
    "vitlab/mask_rcnn(backbone='timm/vit_tiny_patch16_224(img_size=64, patch_size=8, embed_dim=24, depth=4,"
    " num_heads=3)', classes=5, width=16, head=32, anchor=16, proposals=10, size=(64, 64))"
)
BACKBONE = "timm/vit_tiny_patch16_224(img_size=64, patch_size=8, embed_dim=24, depth=4, num_heads=3)"
SWIN = "timm/swin_tiny_patch4_window7_224"
TINY_SWIN = {"img_size": 32, "window_size": 4, "embed_dim": 12, "depths": (1, 1), "num_heads": (1, 2)}
TINY = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
TINY_VIT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48} | {
    "image_size": 32,
    "patch_size": 8,
}

#: Settings that make the default run small.
SMALL: dict[str, dict[str, Any]] = {
    "corruptions": {"names": "fog", "severities": 1},
    "cifar_c": {"names": "fog", "severities": 1},
    "segmentation_corruptions": {"runs": 1},
    "hessian_spectrum": {"batch_size": 2, "count": 2, "mini_batches": 1, "limit": 6},
    "loss_landscape": {"points": 3},
    "causal_trace": {"cells": 2, "images": 2},
    "shape_texture": {"count": 4, "size": 32},
    "adversarial": {"steps": 2},
}


def targets(folder: Path) -> list[Target]:
    """Returns all settings; the files of published sets are written to the folder."""
    made = (_procedures, _parts, _data_sets, _recipes, _models, _arguments)
    return [target for make in made for target in make(folder)]


def _targets(
    kind: str, name: str, function: Callable[..., Any], skip: int | Collection[str], run: Callable[..., Any]
) -> Iterator[Target]:
    """The settings of a function; `run` takes them by name."""
    for setting in settings_of(function, skip):
        yield Target(kind, name, setting.name, setting.default, partial(_with, run, setting.name))


def _with(run: Callable[..., Any], key: str, value: Any) -> Any:
    return run(**{key: value})


# -- instruments and stress tests -----------------------------------------------------------------------------------


def _procedures(folder: Path) -> Iterator[Target]:
    _write_sets(folder)
    for kind, known, use in (
        ("instrument", plugins.instruments(), vitlab.measure),
        ("stress test", plugins.stress_tests(), vitlab.stress),
    ):
        for name, reference in known.items():
            _, module = plugins.procedure(kind, name, {name: reference})
            yield from _targets(
                kind, name, module.measure, 2, partial(_measured, use, name, module.CARD.inputs, folder)
            )


def _measured(use: Callable[..., Any], name: str, inputs: str, folder: Path, /, **settings: Any) -> Any:
    model, batches = _subject(name, inputs, folder)
    return use(name, model, batches, **{**SMALL.get(name, {}), **settings})


def _subject(name: str, inputs: str, folder: Path) -> tuple[Any, Any]:
    """A model and its inputs."""
    if inputs == "files":
        return _colours(10 if name == "cifar_c" else 1000), folder
    return _tiny(inputs)


@cache
def _colours(classes: int) -> Any:
    return Colours(classes, size=32) if classes == 10 else Colours()


@cache
def _tiny(inputs: str) -> tuple[Any, Any]:
    if inputs == "questions":
        model: Any = vitlab.load(VILT, seed=0).eval()
        return model, question_parts(model, "scene_questions(train=2, test=4, questions=2)", same_length=False)[0]
    if inputs == "images with objects":
        model = redraw(vitlab.load(DETECTOR, seed=0)).eval()
        return model, detection_parts(model, "scenes(train=1, test=2, labels='shape')", None, 1)[0]
    if inputs == "image and mask pairs":
        scenes = draw_scenes(3, 24)
        images = (scenes.images.float() / 255 - torch.tensor(MEAN).view(-1, 1, 1)) / torch.tensor(STD).view(-1, 1, 1)
        return torch.nn.Conv2d(3, 26, 3, padding=1).eval(), Batches([(images, scenes.masks)], MEAN, STD)
    model = scenes_model()
    return model, scene_batches(model, 4, 4)


def _write_sets(folder: Path) -> None:
    """A few images in the layout of the published sets."""
    predictions = {"n01498041": [6, 7], "n01531178": [11, 12]}
    for name in ("imagenet-a", "imagenet-r", "sketch", "ImageNet-C/fog/1", "val"):
        fill(folder / name, predictions)
    cifar = folder / "CIFAR-10-C"
    cifar.mkdir(parents=True)
    np.save(cifar / "labels.npy", np.tile(np.array([3, 0]), 5))
    np.save(cifar / "fog.npy", np.full((10, 32, 32, 3), 60, np.uint8))


# -- parts ----------------------------------------------------------------------------------------------------------


def _parts(folder: Path) -> Iterator[Target]:
    for name in plugins.parts():
        yield from _targets(
            "part", name, plugins.part(name), ("dim", "layout", "attention", "kinds"), partial(_fit, name)
        )


def _fit(name: str, /, **settings: Any) -> Any:
    model = scenes_model()
    vitlab.retrofit(model, _call(name, settings))
    with torch.no_grad():
        return model(torch.zeros(2, 3, 32, 32))


def _call(name: str, settings: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_literal(value)}' for key, value in settings.items())})"


def _literal(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # Python converts no longer integers to text
        return "9" * 4000


# -- data, recipes and models ---------------------------------------------------------------------------------------


def _data_sets(folder: Path) -> Iterator[Target]:
    small = {"train": 2, "test": 2}

    def read(opens: Callable[..., Any], name: str, /, **settings: Any) -> Any:
        base = small if "scene" in name else {}
        return opens(_call(name, {**base, **settings}), root=folder).test[0]

    for name, opener in catalogue._openers().items():
        yield from _targets("data", name, opener, 1, partial(read, catalogue.open_data, name))
        for key in catalogue._NARROWING:
            yield Target("data", name, key, None, partial(_with, partial(read, catalogue.open_data, name), key))
    for setting in settings_of(catalogue._OPENERS["scenes"], 1):
        run = partial(_with, partial(read, open_detection, "scenes"), setting.name)
        yield Target("data", "scenes with objects", setting.name, setting.default, run)
    for name, opener in segmentation_sets._OPENERS.items():
        yield from _targets(
            "data", f"{name} with label maps", opener, 1, partial(read, segmentation_sets.open_pairs, name)
        )
    for name, opener in question_catalogue._OPENERS.items():
        run = partial(_questions, name, folder)
        yield from _targets("data", name, opener, 1, run)


def _questions(name: str, folder: Path, /, **settings: Any) -> Any:
    base = {"train": 2, "test": 2} if name == "scene_questions" else {}
    return len(question_catalogue.open_questions(_call(name, {**base, **settings}), root=folder).test)


def _recipes(folder: Path) -> Iterator[Target]:
    for name in plugins.recipes():
        make = plugins.recipe_function(name)
        yield from _targets("recipe", name, make, 0, lambda name=name, **given: plugins.recipe(_call(name, given)))
    recipe = change(plugins.recipe("quick"), {"optimizer.warmup_epochs": 1.0})  # a fraction is valid
    for path, default in _fields(recipe):
        yield Target(
            "recipe", "settings of a run", path, default, lambda value, path=path: change(recipe, {path: value})
        )


def _fields(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(data):
        value = getattr(data, field.name)
        if dataclasses.is_dataclass(value):
            yield from _fields(value, f"{prefix}{field.name}.")
        yield f"{prefix}{field.name}", value


def _models(folder: Path) -> Iterator[Target]:
    for name, module in plugins.assemblies().items():
        made = getattr(importlib.import_module(module), name)
        yield from _targets(
            "model", name, made, 1, partial(_load, f"vitlab/{name}", {"backbone": BACKBONE, "width": 16})
        )
    for name, base in {"vitlab/vit_tiny_cifar": TINY, "vitlab/rvt_tiny": {}, "vitlab/alternet18_cifar": {}}.items():
        yield from _targets("model", name, architecture, 0, partial(_load, name, base))
    others = [each.name for each in settings_of(architecture) if each.name not in (*COMMON, "depth", "embed_dim")]
    vit = "timm/vit_tiny_patch16_224"
    yield from _targets("model", vit, architecture, others, partial(_load, vit, TINY))
    for name, kind, base in ((vit, VisionTransformer, TINY), (SWIN, SwinTransformer, TINY_SWIN)):
        for key, (annotation, default) in constructor_settings(kind).items():
            if key not in (*COMMON, "depth", "embed_dim") and accepts(default, annotation):
                yield Target(
                    "model", f"{name}, constructor", key, default, partial(_with, partial(_load, name, base), key)
                )

    yield from _library_models(folder)


def _library_models(folder: Path) -> Iterator[Target]:
    """Models of Hugging Face, from a folder as `save_pretrained` writes it, and of torchvision."""
    config = ViTConfig(**TINY_VIT)
    ViTForImageClassification(config).save_pretrained(folder / "vit")
    yield from _known(f"hf/{folder}/vit", configuration_settings(config), {}, "hf/ViT")
    name, _, settings = VILT.partition("(")
    small = parse_call(f"vilt({settings}")[1]
    yield from _known(name, configuration_settings(ViltConfig(**small)), small, name)
    for each in ("resnet18", "swin_t", "squeezenet1_1"):
        yield from _known(f"torchvision/{each}", torchvision_settings(each), {}, f"torchvision/{each}")
    run = partial(_load, "torchvision/vit_b_16", {})
    yield Target("model", "torchvision/vit_b_16", "num_layers", 12, partial(_with, run, "num_layers"))


def _known(name: str, settings: Sequence[Setting], base: Mapping[str, Any], shown: str) -> Iterator[Target]:
    for each in settings:
        yield Target("model", shown, each.name, each.default, partial(_with, partial(_load, name, base), each.name))


def _load(name: str, base: Mapping[str, Any], /, **settings: Any) -> Any:
    return vitlab.load(_call(name, {**base, **settings}))


# -- arguments of public functions -----------------------------------------------------------------------------------


def _arguments(folder: Path) -> Iterator[Target]:
    """Arguments whose default, for the comparison of types, is an example where the function has none."""
    model, batches = _tiny("images")
    text = _call("timm/vit_tiny_patch16_224", TINY)

    def fitted(**given: Any) -> None:
        vitlab.retrofit(scenes_model(), **{"part": "ContextBroadcast()", **given})

    def recorded(**given: Any) -> None:
        with vitlab.record(model, **{"what": "features", **given}), torch.no_grad():
            model(torch.zeros(2, 3, 32, 32))

    def measured(**given: Any) -> Any:
        known = {"models": [text], "instruments": ["attention_entropy"], "data": "scenes(train=2, test=2)", "images": 2}
        return vitlab.measure_models(**{**known, "out": folder / "measured", "show": False, **given})

    def normalised(**given: Any) -> Any:
        images, targets = next(iter(batches))
        made = Batches([(images, targets)], **{"mean": batches.mean, "std": batches.std, **given})
        return vitlab.stress("patch_shuffle", model, made, grids=(2,))

    seeds = partial(vitlab.load, text)
    sizes = partial(vitlab.describe, model)
    named = partial(vitlab.measure, "attention_entropy", model, batches)
    together = partial(vitlab.measure_together, model=model, batches=batches)
    saved = partial(vitlab.save, expression=text, path=folder / "saved.safetensors")
    reported = partial(vitlab.report, path=folder / "report.html")
    trained = partial(vitlab.train, out=folder / "run")
    changed = partial(change, plugins.recipe("quick"))
    for name, setting, default, run in (
        ("load", "seed", 0, seeds),
        ("describe", "input_size", 32, sizes),
        ("describe", "model", None, vitlab.describe),
        ("parts", "model", None, vitlab.parts),
        ("restore", "model", None, vitlab.restore),
        ("save", "model", None, saved),
        ("save", "expression", "", partial(vitlab.save, model, path=folder / "saved.safetensors")),
        ("retrofit", "at", "mlp.out", fitted),
        ("retrofit", "blocks", "all", fitted),
        ("record", "what", "features", recorded),
        ("record", "at", "block.out", recorded),
        ("record", "blocks", None, recorded),
        ("measure", "name", "", named),
        ("measure_together", "names", None, together),
        ("report", "measurements", None, reported),
        ("train", "recipe", "", trained),
        ("change", "settings", None, changed),
        ("Batches", "mean", None, normalised),
        ("Batches", "std", None, normalised),
        *(("measure_models", key, "", measured) for key in ("models", "instruments")),
        *(("measure_models", each.name, each.default, measured) for each in settings_of(run_all, 4)),
    ):
        yield Target("argument", name, setting, default, partial(_with, run, setting))
