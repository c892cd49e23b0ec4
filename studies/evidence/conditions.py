"""The trained conditions and their arms as data, in order of priority.

The arms of a condition differ in their parts or their objective only. Runs with the same seed share initial weights,
data order and augmentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vitlab.core.errors import unknown
from vitlab.core.recipe import Recipe, change
from vitlab.recipes.vit_cifar import vit_tiny_cifar100

__all__ = ["CONDITIONS", "Arm", "Condition", "Job", "all_jobs", "recipe_of"]

CB = "ContextBroadcast(blocks='upper')"
TAP = "TokenAwarePooling(blocks='all')"
#: λ = 1 and τ = 2, the paper's; the form is the released one, which gave the paper's numbers.
ADL: Mapping[str, Any] = {"objective.diversification": 1.0, "objective.diversification_form": "released"}


@dataclass(frozen=True)
class Arm:
    """One variant of a condition.

    Args:
        name: letters, digits and underscores.
        parts: what is put into the model, as in a model expression; empty for the plain model.
        settings: changes to the recipe, such as the weight of ADL.
    """

    name: str
    parts: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Condition:
    """A training schedule and the arms that are compared under it.

    Args:
        name: letters, digits and underscores.
        title: what it is, for tables.
        arms: the variants.
        seeds: one run each for every arm.
        heads, settings: the recipe is `vit_tiny_cifar100(heads)` with these settings changed.
        baseline: the condition whose plain runs the arms are compared with; this one by default.
        holdout: number of training images that are left out of training; measure on them instead of on the test images.
        exploratory: settings are searched here, or the pairs are few; no verdict is given.
    """

    name: str
    title: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    heads: int = 3
    settings: Mapping[str, Any] = field(default_factory=dict)
    baseline: str = ""
    holdout: int = 0
    exploratory: bool = False


@dataclass(frozen=True)
class Job:
    """One training run: a condition, one of its arms, and a seed."""

    condition: Condition
    arm: Arm
    seed: int

    @property
    def name(self) -> str:
        """The name of its file, without the suffix.

        >>> Job(CONDITIONS[0], CONDITIONS[0].arms[1], 100).name
        'centre-cb-100'
        """
        return f"{self.condition.name}-{self.arm.name}-{self.seed}"


PLAIN = Arm("plain")
PAIR = (PLAIN, Arm("cb", CB))
FIVE = tuple(range(100, 105))

_TAPADL = (
    PLAIN,
    Arm("tap", TAP),
    Arm("adl", "", ADL),
    Arm("tap_adl", TAP, ADL),
    Arm("cb", CB),
    Arm("cb_tap", f"{TAP} | {CB}"),
    Arm("cb_adl", CB, ADL),
)
_PLACES = (
    Arm("all_blocks", "ContextBroadcast(blocks='all')"),
    Arm("front", "ContextBroadcast(at='mlp.in', blocks='all')"),
    Arm("cb_s", "ScaledContextBroadcast(blocks='all')"),
    Arm("gate", "GatedContextBroadcast(blocks='all')"),
)
_GRID = (
    PLAIN,
    *(Arm(f"lambda_{weight:g}", "", {**ADL, "objective.diversification": weight}) for weight in (0.01, 0.1, 1.0, 10.0)),
    *(Arm(f"tau_{tau:g}", "", {**ADL, "objective.tau": tau}) for tau in (1.0, 3.0, 5.0)),
)

CONDITIONS: tuple[Condition, ...] = (
    Condition("centre", "100 epochs, half of the batches mixed, 3 heads", PAIR, tuple(range(100, 108))),
    Condition("tapadl", "60 epochs", _TAPADL, FIVE, settings={"epochs": 60}),
    Condition("places", "centre, other forms and places of CB", _PLACES, FIVE, baseline="centre"),
    Condition("epochs50", "50 epochs", PAIR, FIVE, settings={"epochs": 50}),
    Condition("mix_all", "all batches mixed", PAIR, FIVE, settings={"augment.mix_probability": 1.0}),
    Condition("one_head", "1 head", PAIR, FIVE, heads=1),
    Condition(
        "grid",
        "λ and τ of ADL, 60 epochs, 5,000 training images held out",
        _GRID,
        (300, 301),
        settings={"epochs": 60},
        holdout=5000,
        exploratory=True,
    ),
    Condition("epochs200", "200 epochs", PAIR, FIVE, settings={"epochs": 200}),
)


def all_jobs(asked: Sequence[str] = ()) -> list[Job]:
    """Returns the runs of the requested conditions, in order: `centre`, or `centre-cb` for one arm; default all."""
    by_name = {condition.name: condition for condition in CONDITIONS}
    found = []
    for text in asked or by_name:
        name, _, arm_name = text.partition("-")
        if name not in by_name:
            raise unknown("condition", name, by_name)
        condition = by_name[name]
        arms = {arm.name: arm for arm in condition.arms}
        if arm_name and arm_name not in arms:
            raise unknown(f"arm of {name}", arm_name, arms)
        chosen = [arms[arm_name]] if arm_name else condition.arms
        found += [Job(condition, arm, seed) for arm in chosen for seed in condition.seeds]
    return found


def recipe_of(job: Job, settings: Sequence[str] = ()) -> Recipe:
    """Returns the recipe of a run; `settings` are further changes, as on the command line.

    >>> recipe_of(all_jobs(["tapadl-cb_tap"])[0]).model.partition(" | ")[2]
    "TokenAwarePooling(blocks='all') | ContextBroadcast(blocks='upper')"
    """
    recipe = change(vit_tiny_cifar100(heads=job.condition.heads, seed=job.seed), {"evaluate_every": 10})
    recipe = change(recipe, {**job.condition.settings, **job.arm.settings})
    if job.arm.parts:
        recipe = change(recipe, {"model": f"{recipe.model} | {job.arm.parts}"})
    return change(recipe, settings)
