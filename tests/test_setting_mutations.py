"""Every mutation of a single setting is refused in one line, or runs: no other exception, no long run, no silent error.

`make test-full` tries all mutations, and prints their number; the sample is drawn with a fixed seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cases.setting_mutations import VALUES, Outcome, Target, attempt, attempt_all
from cases.setting_targets import targets
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement

SAMPLE = 1500

#: Mutations that raised other exceptions, or ran for minutes, before settings were checked.
EXAMPLES = [
    ("attention_maps", "images", 2),
    ("token_overfocus", "shares", 0.1),
    ("calibration", "bins", "x"),
    ("adversarial", "epsilons", "8/255"),
    ("adversarial", "steps", 10**6),
    ("occlusion", "grid", 10**6),
    ("corruptions", "names", 1),
    ("scenes", "test", 0x7FFFFFFF),
    ("load", "seed", 1.5),
    ("describe", "input_size", 0.5),
    ("parts", "model", "x"),
    ("record", "at", 0),
    ("measure", "name", 7),
    ("measure_models", "models", 1),
    ("train", "recipe", 1),
    ("Batches", "mean", "x"),
]


def check(mutations: list, capsys: pytest.CaptureFixture[str]) -> None:
    counts, failures = attempt_all(mutations)
    kinds = dict.fromkeys(kind for kind, _ in counts)
    with capsys.disabled():
        print(f"\n{len(mutations)} mutations of single settings:")
        for kind in kinds:
            own = [f"{number} {result}" for (each, result), number in counts.items() if each == kind]
            print(f"  {kind}: {', '.join(own)}")
        for failure in failures:
            print(f"  {failure}")
    assert not failures, "\n".join(map(Outcome.__str__, failures))
    assert {result for _, result in counts} == {"refused", "accepted"}


def test_the_first_examples_are_mutations_and_are_refused(tmp_path: Path) -> None:
    found = {(target.name, target.setting): target for target in targets(tmp_path)}
    for name, setting, value in EXAMPLES:
        assert any(type(each) is type(value) and each == value for each in VALUES)
        outcome = attempt(found[name, setting], value)
        assert outcome.result == "refused" and "\n" not in outcome.message and "expected" in outcome.message, outcome


def test_a_failure_of_each_kind_is_found() -> None:
    """The checks themselves: runs that raise, that accept invalid values, and that use another value."""

    def refuses(value: object) -> None:
        raise VitlabError("x(y=1): expected text")

    def uses_another(value: object) -> Measurement:
        return Measurement("x", "", {}, {}, {}, {"setting": 4})

    def result(run: Callable[[Any], Any], value: Any) -> str:
        return attempt(Target("kind", "x", "setting", 3, run), value).result

    assert result(refuses, 5) == "refused" and result(lambda value: value, 5) == "accepted"
    assert result(lambda value: 1 / 0, 5) == "raised"
    assert [result(lambda value: value, value) for value in (math.nan, "5", True, 0.5, b"5")] == ["silent"] * 5
    assert result(uses_another, 5) == "silent" and result(uses_another, 4) == "accepted"


def test_a_sample_of_mutations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = [(target, value) for target in targets(tmp_path) for value in VALUES]
    check(random.Random(0).sample(every, SAMPLE), capsys)


@pytest.mark.full
def test_all_mutations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check([(target, value) for target in targets(tmp_path) for value in VALUES], capsys)
