"""Every recipe with all its settings: valid types, models that parse and build, complete docstrings."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from vitlab.core import descriptions, plugins
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_call, parse_model
from vitlab.core.recipe import Recipe, change

SIZES = ["tiny", "small", "base"]
PARTS = ["", "cb", "cb_s", "cb_gate", "cb_hybrid", "se", "uniform_a", "uniform_b", "uniform_c", "tap"]
POOLINGS = ["", "tap", "multi_kernel", "average_3", "average_5", "convolution_3", "convolution_5"]
POSITIONS = ["front", "mid", "end", "attention", "both"]
NETWORKS = [
    *("resnet18", "resnet50", "resnet101", "resnext50", "preact_resnet50", "vit_tiny", "vit_small", "pit_tiny"),
    *("swin_tiny", "twins_small", "mixer_tiny", "alternet50", "conv_vit_k3", "conv_vit_k5", "conv_vit_k8"),
]
ARCHITECTURES = ["pit_base", "mixer_small", "pvt_small", "pvt_v2_b1", "swin_tiny", "local_vit_tiny"]

#: Recipe -> grids; a grid is the product of its values.
GRIDS: dict[str, list[dict[str, list]]] = {
    "deit_imagenet": [{"size": SIZES, "part": PARTS, "repeated": [True, False]}, {"heads": [1, 2, 3, 4, 6, 12]}],
    "deit_distilled": [{"size": SIZES, "kind": ["hard", "soft"], "part": ["", "cb", "cb_s"]}],
    "context_broadcasting": [
        {"size": SIZES, "part": PARTS},
        {"size": ["small"], "part": ["cb", "cb_gate", "cb_hybrid"], "position": POSITIONS, "blocks": ["all"]},
        {"heads": [1, 2, 3, 4, 6, 12]},
    ],
    "context_broadcasting_distilled": [{"size": SIZES, "part": ["", "cb", "cb_s"], "kind": ["hard", "soft"]}],
    "context_broadcasting_architectures": [{"architecture": ARCHITECTURES, "part": ["", "cb"]}],
    "extra_block": [{"extra": ["", "attention", "mlp"], "repeated": [True, False]}],
    "context_broadcasting_cifar100": [{"part": ["", "cb"]}],
    "robust_token_attention": [
        {"base": ["fan", "rvt", "deit", "swin"], "pooling": ["", "tap"], "diversification": [0.0, 1.0]},
        {"pooling": POOLINGS},
        {"branches": [1, 2, 3, 4, 5], "allocation": ["all", "shallow", "middle_deep"]},
        {"pooling": [""], "diversification": [0.001, 0.01, 0.1, 1, 10], "tau": [0, 1, 2, 3, 5]},
    ],
    "how_vits_work_cifar": [
        {"network": NETWORKS, "data": ["cifar10", "cifar100"], "augmentation": ["strong", "weak"]},
        {"fraction": [0.02, 0.06, 0.5, 1.0], "epochs": [75, 150, 300, 600, 1200]},
    ],
    "how_vits_work_vit": [
        {"patch_size": [2, 4, 8], "pool": ["token", "avg"]},
        {"depth": [6], "heads": [1, 3, 12], "head_dim": [16, 64]},
    ],
    "how_vits_work_alternet": [
        {"plan": [(0, 0, 0, 0), (0, 0, 0, 2), (0, 1, 1, 2), (1, 2, 3, 2)], "base": ["preact", "resnet", "resnext"]}
    ],
    "how_vits_work_smoothing": [
        {
            "network": ["resnet18", "resnet50", "resnet101", "resnext50", "preact_resnet50"],
            "stages": ["all", ":3", "3:"],
        }
    ],
    "how_vits_work_imagenet": [{"network": ["resnet50", "preact_resnet50", "vit_tiny", "alternet50"]}],
    "vit_tiny_cifar100": [{"heads": [1, 3], "part": ["", "cb"], "seed": [0, 1]}, {"part": PARTS}],
    "vit_tiny_cifar100_cb": [{"heads": [1, 3]}],
    "vit_small_cifar100": [{"part": ["", "cb"]}],
    "vit_small_cifar100_cb": [{"seed": [0, 1]}],
    "quick": [{"part": PARTS, "diversification": [0.0, 1.0]}],
    "finetune": [{"part": PARTS, "diversification": [0.0, 1.0]}, {"size": [0, 224, 384], "strong": [True, False]}],
    "quick_finetune": [{"part": PARTS, "diversification": [0.0, 1.0]}],
    "vqa_vilt": [{"part": ["", "cb", "cb_s"], "tokens": ["image", "text", "both", "each"]}],
    "quick_vqa": [{"part": ["", "cb", "cb_s"], "tokens": ["image", "text", "both", "each"]}],
    "ade20k_upernet": [{"size": ["ti", "s", "b"], "part": ["", "cb", "cb_s"], "iterations": [40_000, 160_000]}],
    "cityscapes_segformer": [{"part": ["", "tap"], "diversification": [0.0, 1.0]}],
    "camvid_upernet": [{"part": PARTS, "diversification": [0.0, 1.0]}],
    "quick_segmentation": [{"part": ["", "cb", "cb_s", "tap"], "diversification": [0.0, 1.0]}],
    "coco_mask_rcnn": [
        {"size": SIZES, "part": PARTS[:-1]},
        {"part": ["cb"], "blocks": ["all"], "batch_size": [16, 32]},
    ],
    "quick_detection": [{"part": PARTS}],
}

DATA = ("imagenet", "cifar10", "cifar100", "scenes", "camvid", "ade20k", "cityscapes", "coco", "vqav2")
DATA += ("scene_questions",)


def texts() -> list[str]:
    """Every recipe with its defaults and across its grids, as on the command line."""
    found = []
    for name, grids in GRIDS.items():
        found.append(name)
        for grid in grids:
            for values in itertools.product(*grid.values()):
                settings = ", ".join(f"{key}={value!r}" for key, value in zip(grid, values, strict=True))
                found.append(f"{name}({settings})")
    return found


def note(name: str) -> str:
    return getattr(importlib.import_module(plugins.recipes()[name]), name).__doc__


def test_every_recipe_has_a_test_grid():
    assert set(GRIDS) == set(plugins.recipes())


@pytest.mark.parametrize("name", GRIDS)
def test_recipes_are_data_of_the_right_kind(name):
    for text in (text for text in texts() if parse_call(text)[0] == name):
        recipe = plugins.recipe(text)
        assert isinstance(recipe, Recipe), text
        assert parse_model(recipe.model).source in ("timm", "vitlab", "file"), text
        assert parse_call(recipe.data)[0] in DATA, text
        if recipe.objective.teacher:
            assert parse_model(recipe.objective.teacher).source == "timm"
        groups = (recipe.augment, recipe.optimizer, recipe.objective, recipe.segmentation, recipe.detection)
        for group in (recipe, *groups):
            hints = typing.get_type_hints(type(group))
            for field in dataclasses.fields(group):
                value, choices = getattr(group, field.name), typing.get_args(hints[field.name])
                assert not choices or not isinstance(value, str) or value in choices, (text, field.name, value)
        assert all(0 < epoch <= recipe.epochs for epoch in recipe.snapshots)
        assert recipe.optimizer.warmup_epochs < recipe.epochs
        hash(recipe)  # frozen all the way down


def test_parts_of_the_recipes_exist():
    used = {part.name for text in texts() for part in parse_model(plugins.recipe(text).model).parts}
    assert used <= set(plugins.parts())
    assert {"ContextBroadcast", "UniformHead", "TokenAwarePooling"} <= used


def test_settings_that_recipes_take_are_also_changed_by_hand():
    assert change(plugins.recipe("quick"), ["epochs=3", "objective.diversification=1"]) == plugins.recipe(
        "quick(epochs=3, diversification=1)"
    )


@pytest.mark.parametrize("name", GRIDS)
def test_notes_have_all_required_entries(name):
    text = note(name)
    for item in ("Source", "Hardware", "Runtime", "Expected", "Command"):
        assert re.search(rf"^ *{item}: \S", text, re.MULTILINE), f"{name} does not say its {item.lower()}"
    assert descriptions.summary(plugins.recipes()[name], name) == text.partition("\n")[0] != ""


@pytest.mark.parametrize("name", GRIDS)
def test_the_command_of_a_note_names_the_recipe(name):
    command = re.search(r"vitlab train (?:\"(?P<quoted>[^\"]+)\"|(?P<plain>\S+))", note(name))
    text = command["quoted"] or command["plain"]
    assert parse_call(text)[0] == name
    assert isinstance(plugins.recipe(text), Recipe)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("deit_imagnet", "did you mean 'deit_imagenet'"),
        ("deit_imagenet(sise='tiny')", "did you mean 'size'"),
        ("deit_imagenet(size='huge')", "'tiny', 'small', 'base'"),
        ("deit_imagenet(size=3)", "expected one of 'tiny', 'small', 'base'"),
        ("deit_imagenet(repeated=1)", "expected True or False"),
        ("deit_imagenet('tiny')", "key=value"),
        ("deit_imagenet(size=open('x'))", "not a literal"),
        ("context_broadcasting(part='', position='end')", "need a part; give part="),
        ("context_broadcasting(position='middle')", "'front', 'mid', 'end'"),
        ("how_vits_work_cifar(fraction=0.0)", "expected a number above 0 and up to 1"),
        ("how_vits_work_cifar(epochs=0)", "an integer from 1 to 90,000"),
        ("ade20k_upernet(iterations=6000)", "at most 4000, or a multiple of 4000"),
        ("deit_recipe", "no recipe 'deit_recipe'"),
        ("deit_imagenet.__globals__", "no recipe"),
    ],
)
def test_mistakes_are_one_line_that_names_the_choices(text, part):
    with pytest.raises(VitlabError) as error:
        plugins.recipe(text)
    assert part in str(error.value) and "\n" not in str(error.value)


def test_recipes_import_no_torch():
    modules = [*sorted(set(plugins.recipes().values())), "vitlab.recipes"]
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "from vitlab.core import plugins\n"
        "for name in plugins.recipes(): plugins.recipe(name)\n"
        "print(sorted({'torch', 'timm', 'torchvision', 'numpy'} & set(sys.modules)))"
    )
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert run.stdout.strip() == "[]"


def test_recipes_import_core_only():
    allowed = ("vitlab.core.", "vitlab.recipes.")
    for module in set(plugins.recipes().values()):
        tree = ast.parse(inspect.getsource(importlib.import_module(module)))
        ours = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        assert all(name.startswith(allowed) for name in ours if name.startswith("vitlab"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_model_builds_on_the_meta_device_with_its_parts():
    import torch

    from vitlab import zoo

    there = set(zoo.model_names("vitlab"))
    for expression, recipe in {(made := plugins.recipe(text)).model: made for text in texts()}.items():
        parsed = parse_model(expression)
        if recipe.task != "classification":
            continue  # built by the tests of its task
        if parsed.source == "vitlab" and parsed.name not in there:
            continue  # not written yet
        if parsed.source == "file" or parsed.settings.get("pretrained"):
            continue  # trained weights; see test_finetune.py
        with torch.device("meta"):
            model = zoo.load(expression)
        classes = {"cifar10": 10, "cifar100": 100, "scenes": 25, "imagenet": 1000}[parse_call(recipe.data)[0]]
        assert model.num_classes == classes, expression
        kinds = {type(module).__name__ for module in model.modules()}
        assert {part.name for part in parsed.parts} <= kinds, expression


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("context_broadcasting(size='tiny')", 5_717_416),
        ("context_broadcasting(size='small', part='cb_s')", 22_050_664 + 12 * 384),
        ("context_broadcasting(size='base')", 86_567_656),
        ("context_broadcasting(size='small', part='uniform_a')", 21_459_304),
        ("context_broadcasting_distilled(size='tiny')", 5_910_800),
        ("deit_distilled(size='base')", 87_338_192),
        ("robust_token_attention()", 50_735_528),
        ("robust_token_attention(branches=5)", 50_801_368),
        ("robust_token_attention(pooling='convolution_3')", 79_376_424),
        ("robust_token_attention(base='rvt')", 92_089_288),
        ("robust_token_attention(base='rvt', pooling='')", 91_755_688),
        ("how_vits_work_cifar", 5_403_172),
        ("how_vits_work_cifar(network='alternet50')", 33_012_840),
        ("how_vits_work_cifar(network='preact_resnet50')", 23_697_572),
        ("how_vits_work_alternet(plan=(0, 1, 3, 2))", 34_062_538),
        ("how_vits_work_imagenet(network='alternet50')", 35_915_038),
    ],
)
def test_models_have_the_parameters_of_the_papers(text, parameters):
    import torch

    from vitlab import zoo

    with torch.device("meta"):
        model = zoo.load(plugins.recipe(text).model)
    assert sum(weight.numel() for weight in model.parameters()) == parameters


@pytest.mark.slow
def test_quick_reaches_the_documented_accuracy(tmp_path: Path) -> None:
    """Trained for about a minute; other CPUs sum in another order, which may change a few of the 512 test images."""
    from vitlab.recipes.quick import quick
    from vitlab.tasks.classification import run

    reached = run(quick(), tmp_path, device="cpu")["top1"]
    tour = Path(__file__).resolve().parent.parent.parent / "docs" / "tour.md"
    for text in (quick.__doc__ or "", tour.read_text(encoding="utf-8")):
        stated = re.search(r"top-1 of ([\d.]+) with seed 0", " ".join(text.split()))
        assert stated is not None and float(stated[1]) == pytest.approx(reached, abs=5)
