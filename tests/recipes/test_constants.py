"""The settings of the recipes against the numbers that the papers and their released code print."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from vitlab.core import plugins
from vitlab.core.expressions import parse_model
from vitlab.core.recipe import Recipe


def recipe(text: str) -> Recipe:
    return plugins.recipe(text)


def drop_path(text: str) -> float:
    return parse_model(recipe(text).model).settings["drop_path_rate"]


@pytest.mark.parametrize(
    ("text", "batch", "rate"),
    [
        ("deit_imagenet", 1024, 1e-3),
        ("context_broadcasting(size='base')", 1024, 1e-3),
        ("robust_token_attention", 2048, 2e-3),
        ("robust_token_attention(base='rvt')", 2048, 2e-3),
        ("how_vits_work_cifar", 96, 1.25e-4),
        ("how_vits_work_imagenet", 128, 1.25e-4),
        ("vit_tiny_cifar100", 512, 1e-3),
    ],
)
def test_batch_and_learning_rate(text, batch, rate):
    assert (recipe(text).batch_size, recipe(text).optimizer.lr) == (batch, rate)
    assert recipe(text).optimizer.name == "adamw"
    assert (recipe(text).optimizer.weight_decay, recipe(text).optimizer.betas) == (0.05, (0.9, 0.999))


def test_deit_augments_as_it_was_released():
    augment, optimizer = recipe("deit_imagenet").augment, recipe("deit_imagenet").optimizer
    assert (augment.mixup, augment.cutmix, augment.mix_probability, augment.switch_probability) == (0.8, 1.0, 1.0, 0.5)
    assert (augment.erasing, augment.randaugment, augment.crop) == (0.25, "rand-m9-mstd0.5-inc1", "resized")
    assert (optimizer.warmup_epochs, optimizer.warmup_lr, optimizer.min_lr, optimizer.clip) == (5, 1e-6, 1e-5, 0.0)
    assert recipe("deit_imagenet").epochs == 300
    assert drop_path("deit_imagenet") == 0.1


@pytest.mark.parametrize(
    ("size", "repeats", "warmup", "rate"), [("tiny", 1, 5, 0.1), ("small", 1, 5, 0.1), ("base", 3, 10, 0.2)]
)
@pytest.mark.parametrize("name", ["context_broadcasting", "context_broadcasting_distilled"])
def test_the_changes_that_the_paper_makes_for_cb(name, size, repeats, warmup, rate):
    text = f"{name}(size={size!r}, part='cb')"
    assert recipe(text).augment.repeats == repeats
    assert recipe(text).optimizer.warmup_epochs == warmup
    assert drop_path(text) == rate


def test_a_part_alone_changes_nothing_but_the_model():
    plain, with_part = recipe("deit_imagenet(size='base')"), recipe("deit_imagenet(size='base', part='cb')")
    assert with_part.model == f"{plain.model} | ContextBroadcast(blocks='upper')"
    assert (with_part.augment, with_part.optimizer) == (plain.augment, plain.optimizer)
    assert plain.augment.repeats == 3
    assert recipe("context_broadcasting(part='', size='base')") == plain
    assert recipe("vit_tiny_cifar100(part='cb', seed=2)") == recipe("vit_tiny_cifar100_cb(seed=2)")


@pytest.mark.parametrize(
    ("position", "seams"),
    [("front", ["mlp.in"]), ("mid", ["mlp.mid"]), ("end", ["mlp.out"]), ("both", ["mlp.out", "attn.out"])],
)
def test_positions_are_seams(position, seams):
    parts = parse_model(recipe(f"context_broadcasting(position={position!r}, blocks='all')").model).parts
    assert [part.at for part in parts] == seams
    assert {part.blocks for part in parts} == {"all"}


@pytest.mark.parametrize("name", ["vit_tiny_cifar100", "vit_small_cifar100", "quick"])
def test_small_recipes_insert_a_part_where_the_papers_recipe_does(name):
    where = "part='cb_gate', position='both', blocks='all'"
    assert (
        parse_model(recipe(f"{name}({where})").model).parts
        == parse_model(recipe(f"context_broadcasting({where})").model).parts
    )


def test_heads_of_the_quick_recipe():
    assert parse_model(recipe("quick(heads=2)").model).settings["num_heads"] == 2


def test_distillation_of_deit():
    hard, soft = recipe("deit_distilled").objective, recipe("deit_distilled(kind='soft')").objective
    assert (hard.distillation, hard.distillation_weight) == ("hard", 0.5)
    assert (soft.distillation, soft.distillation_weight, soft.temperature) == ("soft", 0.1, 3.0)
    assert hard.teacher == soft.teacher == "timm/regnety_160.deit_in1k(pretrained=True)"


@pytest.mark.parametrize(
    ("architecture", "epochs"),
    [("pit_base", 300), ("mixer_small", 300), ("pvt_small", 120), ("pvt_v2_b1", 120), ("swin_tiny", 120),
     ("local_vit_tiny", 150)],
)  # fmt: skip
def test_epochs_of_the_other_architectures(architecture, epochs):
    assert recipe(f"context_broadcasting_architectures(architecture={architecture!r})").epochs == epochs


def test_fan_as_it_was_released():
    fan = recipe("robust_token_attention")
    assert (fan.optimizer.warmup_epochs, fan.optimizer.warmup_lr, fan.optimizer.min_lr) == (10, 1e-6, 1e-6)
    assert (fan.augment.erasing, fan.augment.mixup, fan.augment.cutmix, fan.augment.repeats) == (0.3, 0.8, 1.0, 1)
    assert (drop_path("robust_token_attention"), fan.ema, fan.epochs) == (
        0.35,
        0.99996,
        300,
    )  # EMA: FAN's own is 0.99992
    assert (fan.objective.diversification, fan.objective.tau) == (1.0, 2.0)


def test_rvt_as_it_was_released():
    rvt = recipe("robust_token_attention(base='rvt')")
    assert (rvt.optimizer.warmup_epochs, rvt.ema, rvt.precision, rvt.optimizer.clip) == (5, 0.99996, "float32", 0.0)
    assert rvt.augment.patches and drop_path("robust_token_attention(base='rvt')") == 0.1


def test_allocation_and_branches():
    parts = parse_model(recipe("robust_token_attention(allocation='shallow', branches=3)").model).parts
    assert [(part.blocks, dict(part.settings)) for part in parts] == [(":30%", {"branches": 3})]
    assert parse_model(recipe("robust_token_attention(allocation='middle_deep')").model).parts[0].blocks == "30%:"
    assert parse_model(recipe("robust_token_attention(pooling='')").model).parts == ()


def test_how_vits_work_on_cifar():
    strong, weak = recipe("how_vits_work_cifar"), recipe("how_vits_work_cifar(augmentation='weak')")
    assert (strong.epochs, strong.optimizer.warmup_epochs) == (305, 5)  # warm-up comes before the 300
    assert (strong.optimizer.warmup_lr, strong.optimizer.min_lr, strong.optimizer.clip) == (0.0, 0.0, 5.0)
    assert (strong.augment.mixup, strong.augment.cutmix, strong.augment.erasing) == (1.0, 0.8, 0.0)
    assert (strong.augment.randaugment, strong.augment.crop) == ("rand-m9-n2-mstd1.0", "pad")
    assert (strong.objective.smoothing, drop_path("how_vits_work_cifar")) == (0.1, 0.1)
    assert (weak.augment.mixup, weak.augment.randaugment, weak.objective.smoothing, weak.optimizer.clip) == (
        0,
        "",
        0,
        0,
    )
    assert {5, 305} <= set(strong.snapshots)


@pytest.mark.parametrize(
    ("network", "stages", "expected"),
    [
        ("resnet18", "all", ["stages.0.1", "stages.1.1", "stages.2.1", "stages.3.1"]),
        ("resnet18", ":3", ["stages.0.1", "stages.1.1", "stages.2.1"]),
        ("preact_resnet50", "3:", ["stages.3.2"]),
    ],
)
def test_smoothing_goes_to_the_ends_of_the_stages_of_the_plain_network(network, stages, expected):
    import torch

    from vitlab import zoo
    from vitlab.modules.spatial_smoothing import SpatialSmoothing

    smooth = recipe(f"how_vits_work_smoothing(network={network!r}, stages={stages!r})")
    plain = recipe(f"how_vits_work_cifar(network={network!r})")
    assert replace(smooth, model=plain.model) == plain
    with torch.device("meta"):
        model = zoo.load(smooth.model)
    places = [name for name, module in model.named_modules() if isinstance(module, SpatialSmoothing)]
    assert [name.rpartition(".")[0] for name in places] == expected


def test_how_vits_work_on_imagenet():
    made = recipe("how_vits_work_imagenet")
    assert (made.augment.randaugment, made.augment.erasing) == ("rand-m9-n2-mstd0.5", 0.25)
    assert (made.optimizer.clip, made.image_size, made.epochs) == (0.0, (224, 224), 305)


def test_heads_and_channels_make_the_width():
    settings = parse_model(recipe("how_vits_work_vit(depth=6, heads=12, head_dim=32)").model).settings
    assert (settings["depth"], settings["num_heads"], settings["embed_dim"]) == (6, 12, 384)


def test_our_own_vit_on_cifar100():
    made = recipe("vit_tiny_cifar100")
    settings = parse_model(made.model).settings
    assert (made.epochs, made.data, made.image_size, made.objective.smoothing) == (100, "cifar100", (32, 32), 0.1)
    assert (made.augment.crop, made.augment.flip, made.augment.mix_probability) == ("pad", 0.5, 0.5)
    assert (settings["patch_size"], settings["drop_path_rate"], settings["num_heads"]) == (4, 0.1, 3)


def test_quick_is_small():
    made = recipe("quick(diversification=1.0)")
    assert made.data == "scenes(train=1536, test=512, objects=1, cues='agree')"
    assert made.objective.diversification == 1.0 and recipe("quick").objective.diversification == 0.0
    assert not made.compile and made.precision == "float32"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("vitlab.stress_tests.frequency_noise", ["0.15", "pixel", "normalised inputs"]),
        ("vitlab.stress_tests.adversarial", ["CB", "ε"]),
        ("vitlab.losses.attention_diversification", ["class token", "DeiT"]),
        ("vitlab.recipes.robust_token_attention", ["row and column of the class token", "DeiT-B", "augmented copy"]),
    ],
)
def test_unpublished_settings_are_documented_as_our_choice(module, words):
    text = Path(importlib.import_module(module).__file__).read_text()
    flat = " ".join(text.split())
    assert "our choice" in flat and all(word in flat for word in words)


def test_nep_and_ape_cite_the_paper():
    from vitlab.core import formulas

    for function, figures in (
        (formulas.negative_proportion, ["Fig. C.5"]),
        (formulas.positive_average, ["Fig. C.5"]),
    ):
        text = " ".join(function.__doc__.split())
        assert "HDVW App. C" in text and all(figure in text for figure in figures) and "Sec. 2" not in text
