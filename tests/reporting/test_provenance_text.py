"""Provenance: each value once, and where it holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.provenance_text import collect
from vitlab.reporting.sections import label_models, sort


def found(kind: str, subject: str, settings: dict[str, Any] | None = None, **about: Any) -> Measurement:
    return Measurement(kind, subject, {"x": np.array(1.0)}, {"x": ()}, {}, settings or {}, about)


def entries(*measurements: Measurement) -> dict[str, dict[str, str]]:
    labels = label_models(measurements)
    made = collect(sort(measurements, labels), {label: subject for subject, label in labels.items()})
    return {entry.name: dict(entry.values) for entry in made.entries}


def test_a_value_is_stated_once_with_the_measurements_that_have_it() -> None:
    made = entries(
        found("k", "a", device="cpu", images=8),
        found("k", "b", device="cpu", images=8),
        found("j", "a", device="cpu", images=9),
        found("j", "b", device="gpu", images=9),
    )
    assert made["device"] == {"cpu": "k, j (a)", "gpu": "j (b)"} and made["images"] == {"8": "k", "9": "j"}


def test_what_holds_for_all_or_for_a_model_is_said_so() -> None:
    two = [found(kind, who, run=who, seed=1) for kind in "kj" for who in "ab"]
    assert entries(*two) == {"run": {"a": "a", "b": "b"}, "seed": {"1": ""}}


def test_what_holds_for_nearly_all_names_the_rest() -> None:
    """A training curve has no device: what all others share is not listed with every one of their names."""
    measured = [found(kind, who, device="cpu", run=who) for kind in "kjh" for who in "ab"]
    made = entries(*measured, *(found("training", who) for who in "ab"))
    assert made == {"device": {"cpu": "all but training"}, "run": {each: f"{each} (all but training)" for each in "ab"}}
    made = entries(*measured[:-1], found("h", "b", device="gpu", run="b"))
    assert made["device"] == {"cpu": "k, j, h (a)", "gpu": "h (b)"}


def test_times_are_a_range_and_nested_entries_are_flat() -> None:
    times = ("2026-01-02", "2026-01-01")
    made = entries(*(found(k, "a", {"tau": 1}, time=t, versions={"np": 2}) for k, t in zip("kj", times, strict=True)))
    assert made["time"] == {"2026-01-01 to 2026-01-02": ""}
    assert made["versions, np"] == {"2": ""} and made["settings, tau"] == {"1": ""}


def test_recipes_show_what_differs_between_models() -> None:
    def trained(who: str, adl: float, **settings: Any) -> Measurement:
        recipe = {"task": "classification", "seed": 0, "objective": {"diversification": adl, "tau": 2.0}, **settings}
        return found("training", who, recipe={**recipe, "detection": {"score": 0.05}})

    measurements = [trained("a", 0.0), trained("b", 1.0, ema=0.9), trained("c", 0.0)]
    labels = label_models(measurements)
    made = collect(sort(measurements, labels), {label: subject for subject, label in labels.items()})
    assert {each.name: dict(each.values) for each in made.recipes} == {
        "objective, weight of the attention diversification loss (ADL)": {"0.0": "a, c", "1.0": "b"},
        "ema": {"not set": "a, c", "0.9": "b"},
        "the same for all": {"task classification; seed 0; objective, tau 2.0": ""},
    }
    assert not made.entries, "a recipe is not repeated among the settings of measurements"


def test_models_have_their_expression_and_weights() -> None:
    model = {"name": "x", "expression": "timm/vit(depth=2) | CB", "weights": "ab12", "origin": "random", "parts": []}
    measurements = [found("k", "mine", model=model), found("j", "mine", model=model)]
    labels = label_models(measurements)
    made = collect(sort(measurements, labels), {"mine": "mine"})
    assert made.models == {
        "mine": {
            "expression": "timm/vit(depth=2) | CB",
            "weights": "random",
            "digest of the weights": "ab12",
        }
    }
    assert not made.entries
