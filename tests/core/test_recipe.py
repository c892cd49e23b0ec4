"""Recipes: changing settings, and errors for invalid values."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Optimizer, Recipe, change, stored_recipe

START = Recipe("timm/vit_tiny_patch16_224", "scenes")


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("epochs=3", "epochs", 3),
        (" epochs = 3 ", "epochs", 3),
        ("optimizer.lr=1e-4", "optimizer.lr", 1e-4),
        ("optimizer.lr=1", "optimizer.lr", 1.0),
        ("optimizer.warmup_epochs=0.5", "optimizer.warmup_epochs", 0.5),
        ("optimizer.betas=(0.9, 0)", "optimizer.betas", (0.9, 0.0)),
        ("image_size=[32, 64]", "image_size", (32, 64)),
        ("snapshots=(1, 2, 3)", "snapshots", (1, 2, 3)),
        ("snapshots=()", "snapshots", ()),
        ("compile=True", "compile", True),
        ("precision=bfloat16", "precision", "bfloat16"),
        ("precision='bfloat16'", "precision", "bfloat16"),
        ("objective.distillation=hard", "objective.distillation", "hard"),
        ("objective.distillation=", "objective.distillation", ""),
        ("model=timm/x(a=1, b='=') | P", "model", "timm/x(a=1, b='=') | P"),
        ("augment.randaugment=rand-m9-n2-mstd0.5", "augment.randaugment", "rand-m9-n2-mstd0.5"),
        ("seed=-1", "seed", -1),
    ],
)
def test_a_setting_changes_one_thing_and_nothing_else(text: str, path: str, value: object) -> None:
    changed = change(START, [text])
    found, expected = dataclasses.asdict(changed), dataclasses.asdict(START)
    *groups, name = path.split(".")
    place, old = found, expected
    for group in groups:
        place, old = place[group], old[group]
    assert place[name] == value and type(place[name]) is type(value)
    if isinstance(value, tuple):
        assert [type(item) for item in place[name]] == [type(item) for item in value]
    old[name] = value
    assert found == expected
    assert changed == change(START, {path: value})
    assert Recipe("timm/vit_tiny_patch16_224", "scenes") == START


def test_settings_are_taken_in_order_and_the_last_one_counts() -> None:
    assert change(START, ["epochs=3", "seed=1", "epochs=4"]) == dataclasses.replace(START, epochs=4, seed=1)
    assert change(START, []) == START == change(START, {})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("epochs", "invalid setting 'epochs'; expected key=value"),
        ("=3", "invalid setting"),
        ("epoch=3", r"no setting 'epoch' \(did you mean 'epochs'\?\); there are: model, data"),
        ("optimizer.rate=3", "no setting 'optimizer.rate'; there are: name, lr, betas"),
        ("optimizer=3", "'optimizer': it is a group; set one of its settings: name, lr"),
        ("epochs.lr=3", "'epochs.lr': epochs is not a group"),
        ("optimizer.lr.x=3", "is not a group"),
        ("optimizer.=3", "no setting 'optimizer.'"),
        ("epochs=3.0", "epochs=3.0: expected an integer from 1 to 100,000"),
        ("epochs=three", "epochs='three': expected an integer"),
        ("epochs=True", "epochs=True: expected an integer"),
        ("epochs={[]: 1}", "expected an integer"),
        ("epochs=__import__('os')", r"epochs=\"__import__\('os'\)\": expected an integer"),
        ("epochs=" + "(" * 500, "expected an integer"),
        ("epochs=0", "epochs=0: expected an integer from 1 to 100,000"),
        ("batch_size=0", "batch_size=0: expected an integer from 1"),
        ("evaluate_every=0", "evaluate_every=0: expected an integer from 1"),
        ("accumulate=3", "batch_size=1024 cannot be divided equally into accumulate=3 steps"),
        ("optimizer.lr=nan", "optimizer.lr='nan': expected a number from 0"),
        ("compile=1", "compile=1: expected True or False"),
        ("model=3", "model=3: expected text in quotes"),
        ("image_size=224", r"image_size=224: expected \(an integer from 1 to 8,192, an integer"),
        ("image_size=(1, 2, 3)", r"image_size=\(1, 2, 3\): expected \(an integer"),
        ("image_size=('a', 'b')", r"expected \(an integer"),
        ("snapshots=(1.5,)", r"snapshots=\(1.5,\): expected a list, each an integer"),
        ("optimizer.name=adam", "optimizer.name='adam': expected 'adamw' or 'sgd'"),
        ("precision=[]", "precision=.*: expected one of 'float32', 'bfloat16', 'float16'"),
        ("segmentation.scale=(2, 1)", r"scale=\(2.0, 1.0\)\): expected \(smallest, largest\)"),
        ("snapshots=(3, 999)", r"snapshots=\(3, 999\): expected epochs up to 300, the last of the run"),
        ("objective.teacher=nope", "teacher='nope'.: invalid model expression 'nope'; expected source/name"),
        ("augment.randaugment=rand-m99-n2", "invalid section 'm99' of RandAugment .*; expected m from 0 to 30"),
        ("augment.randaugment=rand-m9-n99", "invalid section 'n99' of RandAugment .*; expected n from 1 to 15"),
        ("augment.randaugment=rand-m9-p1.5", "invalid section 'p1.5'"),
        ("augment.randaugment=rand-mx", "invalid section 'mx'"),
        ("augment.randaugment=rand-9", "invalid section '9' of RandAugment"),
        ("augment.randaugment=auto", "invalid RandAugment 'auto'; expected for example rand-m9"),
        ("augment.crop=random", "augment.crop='random': expected one of 'pad', 'resized', 'none'"),
    ],
)
def test_mistakes_are_one_line_that_names_the_choices(text: str, error: str) -> None:
    with pytest.raises(VitlabError, match=error) as caught:
        change(START, [text])
    assert len(str(caught.value).splitlines()) == 1


def test_snapshots_of_a_recipe_may_be_later_than_fewer_epochs() -> None:
    longer = change(START, {"epochs": 100, "snapshots": (10, 100)})
    assert change(longer, {"epochs": 5}).snapshots == (10, 100)


@pytest.mark.parametrize("order", [1, -1])
def test_settings_that_are_valid_together_only_are_taken_in_any_order(order: int) -> None:
    settings = ["accumulate=3", "batch_size=15"][::order]
    changed = change(START, settings)
    assert (changed.accumulate, changed.batch_size) == (3, 15)
    with pytest.raises(VitlabError, match="batch_size=16 cannot be divided equally into accumulate=3 steps"):
        change(START, [*settings, "batch_size=16"])


@pytest.mark.parametrize(
    ("path", "given", "expected"),
    [
        ("epochs", np.int64(3), 3),
        ("optimizer.lr", np.float64(0.5), 0.5),
        ("image_size", np.array([32, 48]), (32, 48)),
        ("snapshots", (np.int32(1), np.int32(2)), (1, 2)),
        ("optimizer.milestones", torch.tensor([1, 2]), (1, 2)),
        ("segmentation.base_size", [np.uint8(8), 9], (8, 9)),
    ],
)
def test_numbers_of_numpy_and_torch_are_stored_like_those_of_python(path: str, given: Any, expected: Any) -> None:
    changed, plain = change(START, {path: given}), change(START, {path: expected})
    assert json.dumps(dataclasses.asdict(changed)) == json.dumps(dataclasses.asdict(plain))
    assert changed == plain and hash(changed) == hash(plain)


def test_numbers_of_numpy_in_a_new_recipe_are_stored_as_numbers() -> None:
    made = dataclasses.replace(START, epochs=np.int64(3), snapshots=(np.int64(1),))
    assert json.loads(json.dumps(dataclasses.asdict(made)))["epochs"] == 3
    assert made == dataclasses.replace(START, epochs=3, snapshots=(1,))


def test_a_recipe_is_frozen_comparable_and_plain() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        START.epochs = 3
    assert hash(START) == hash(Recipe("timm/vit_tiny_patch16_224", "scenes"))
    assert json.loads(json.dumps(dataclasses.asdict(START)))["optimizer"]["betas"] == [0.9, 0.999]


@pytest.mark.parametrize(
    "setting",
    [
        "optimizer.layer_decay=0.0",
        "optimizer.layer_decay=1.5",
        "optimizer.head_lr=-1.0",
        "optimizer.power=0.0",
        "steps_per_epoch=-1",
    ],
)
def test_settings_of_the_optimiser_are_checked(setting: str) -> None:
    name = setting.partition("=")[0].rpartition(".")[2]
    with pytest.raises(VitlabError, match=rf"{name}=.*: expected (a number above 0|an integer from 0)"):
        change(Recipe("timm/vit_tiny_patch16_224", "scenes"), [setting])


def test_numbers_keep_their_type_because_digests_of_stored_results_depend_on_it() -> None:
    assert type(Optimizer(warmup_epochs=5).warmup_epochs) is int
    assert json.dumps(dataclasses.asdict(START)) == json.dumps(
        dataclasses.asdict(stored_recipe(dataclasses.asdict(START)))
    )


@pytest.mark.parametrize("given", [{"epochs": 0}, {"seed": "x"}, {"image_size": (224,)}, {"precision": "float64"}])
def test_a_recipe_in_python_is_checked_like_one_of_the_command_line(given: dict[str, Any]) -> None:
    with pytest.raises(VitlabError, match=rf"^Recipe\({next(iter(given))}=.*: expected"):
        Recipe("timm/vit_tiny_patch16_224", "scenes", **given)
