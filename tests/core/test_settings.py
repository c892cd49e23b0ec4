"""Settings against annotations: valid values, error messages, and where settings are checked."""

from __future__ import annotations

import fractions
import importlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pytest
import torch

import vitlab
from cases import CASES
from vitlab import extend
from vitlab.core import plugins
from vitlab.core.annotations import fits
from vitlab.core.bounds import Choices, Length, Range
from vitlab.core.errors import VitlabError
from vitlab.core.settings import check_settings
from vitlab.core.signatures import settings_of
from vitlab.data import catalogue, question_catalogue, segmentation_sets
from vitlab.models._settings import architecture

if TYPE_CHECKING:
    from fractions import Fraction

BATCHES = [(torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.long))]

Ratio = Annotated[float, Range(0, 1, open_low=True, open_high=True)]
Share = Annotated[float, Range(0, 1, open_low=True)]
Count = Annotated[int, Range(1, 9, cost=lambda count: f"{count} cost {2 * count}")]
Colour = Annotated[str, Choices(("red", "green", "blue"))]


def takes(
    place: object,
    name: str,
    count: Count = 1,
    ratio: Ratio = 0.5,
    share: Share | None = None,
    flag: bool = False,
    kind: Literal["a", 1] = "a",
    size: int | tuple[int, int] = 3,
    words: list[str] | None = None,
    colours: Colour | Annotated[Sequence[Colour], Length(1, 2, distinct=True)] = "red",
    numbers: tuple[float, ...] = (),
    function: Callable[[], None] | None = None,
    table: Mapping[str, int] | None = None,
    anything=None,
) -> None:
    """A function with an annotation of each kind."""


FITTING = [
    *({"count": value} for value in (1, 9, np.int64(3))),
    *({"ratio": value} for value in (0.5, 1e-9, np.float32(0.5))),
    *({"share": value} for value in (1, 1.0, 0.1, None)),
    *({"flag": value} for value in (True, False)),
    *({"kind": value} for value in ("a", 1)),
    *({"size": value} for value in (-4, (4, 5), [4, 5])),
    *({"words": value} for value in (["a"], ("a", "b"), None)),
    *({"colours": value} for value in ("red", ["red"], ("red", "blue"))),
    *({"numbers": value} for value in ((), (1, 0.5), range(3), np.array([0.1, 0.2]), torch.tensor([1.0]))),
    *({"function": value} for value in (len, None)),
    *({"table": value} for value in ({}, {"a": 1})),
    *({"anything": value} for value in (3, "x", {1})),
    {"more": 3},
]

WRONG = [
    *(({"count": value}, "an integer from 1 to 9$") for value in (0, True, 1.0, "1", None, [1], math.nan)),
    ({"count": 10}, "an integer from 1 to 9; 10 cost 20"),
    ({"count": 10**5000}, r"count=an integer of more than 4,300 digits\): expected an integer from 1 to 9$"),
    *(({"ratio": value}, "a number above 0 and below 1$") for value in (0, 1, math.nan, math.inf, 10**400, "x", False)),
    *(({"share": value}, "a number above 0 and up to 1, or None$") for value in (0, 1.1, -math.inf, True)),
    *(({"flag": value}, "True or False$") for value in (0, 1, None, "True")),
    *(({"kind": value}, "'a' or 1$") for value in ("b", True, 1.0, ["a"])),
    *(({"size": value}, r"an integer, or \(an integer, an integer\)$") for value in (1.5, (4,), [4, 5, 6], (4, True))),
    *(({"words": value}, "a list, each text in quotes, or None$") for value in ("a", [1], {"a": 1}, ["a\0"])),
    (
        {"colours": "gren"},
        r"one of 'red', 'green', 'blue', or a list of 1 to 2 distinct such values \(did you .*'green'",
    ),
    *(({"colours": value}, "a list of 1 to 2 distinct such values") for value in ([], ["red"] * 2, [1], 3, None)),
    *(({"numbers": value}, "a list, each a number$") for value in (1, "12", {1.0}, np.zeros((2, 2)), [math.nan])),
    *(({"numbers": value}, "a list, each a number$") for value in (b"12", bytearray(b"12"), memoryview(b"12"))),
    *(({"function": value}, "a function, or None$") for value in (3, "len")),
    *(({"table": value}, "a dict, or None$") for value in (3, [("a", 1)])),
    ({"name": 3}, "text in quotes$"),
    ({"more": "3"}, "an integer$"),
    ({"place": 3}, "no setting of it 'place'; there are: name, count, .*, words, .*more"),
    ({"conut": 3}, "did you mean 'count'"),
]


@pytest.mark.parametrize("settings", FITTING, ids=str)
def test_valid_settings_are_accepted(settings) -> None:
    check_settings("it", takes, {"name": "x", **settings}, 1, {"more": int})


@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_invalid_settings_raise(settings, message) -> None:
    with pytest.raises(VitlabError, match=message) as caught:
        check_settings("it", takes, {"name": "x", **settings}, 1, {"more": int})
    assert "\n" not in str(caught.value)


def test_arrays_of_lists_and_numbers_become_lists_and_numbers() -> None:
    """A tensor of two numbers has no truth value, and JSON takes no tensor."""
    given = {"numbers": torch.tensor([1.0, 2.0]), "size": np.array([4, 5]), "count": np.int64(3), "flag": True}
    checked = check_settings("f", takes, given, 2)
    assert checked == {"numbers": [1.0, 2.0], "size": [4, 5], "count": 3, "flag": True}
    assert [type(value) for value in checked.values()] == [list, list, int, bool]
    assert not fits(torch.tensor(3), Iterable) and not fits(np.array(3), Iterable) and fits(torch.ones(1), Iterable)


@pytest.mark.parametrize("setting", ["ratio", "numbers"])
def test_numbers_that_torch_does_not_take_are_refused(setting: str) -> None:
    """A fraction times a tensor raises TypeError."""
    half = fractions.Fraction(1, 2)
    with pytest.raises(TypeError):
        half * torch.ones(1)
    for value in (half, [half]) if setting == "numbers" else (half,):
        with pytest.raises(VitlabError, match=rf"f\({setting}=.*expected"):
            check_settings("f", takes, {setting: value}, 2)


@pytest.mark.parametrize("setting", ["colours", "sizes", "numbers"])
def test_a_range_of_many_values_is_refused_without_reading_it(setting: str) -> None:
    """A list is too long, or its first value is wrong: the others are not read, which would take hours."""

    def with_sizes(
        colours: Annotated[Sequence[Colour], Length()] = ("red",),
        sizes: Annotated[Sequence[int], Length(1, 100)] = (1,),
        numbers: float | Annotated[Sequence[float], Length(1, 100, distinct=True)] = 1.0,
    ) -> None: ...

    began = time.process_time()
    with pytest.raises(VitlabError, match=rf"^f\({setting}=range\(0, 1000000000000\)\): expected"):
        check_settings("f", with_sizes, {setting: range(10**12)}, 0)
    assert time.process_time() - began < 1


def test_settings_without_a_default_are_required() -> None:
    with pytest.raises(VitlabError, match="it requires name; write it"):
        check_settings("it", takes, {"count": 2}, 1)


def of_others(
    model: Fraction, batches: Any, *, scale: float = 1.0, limit: int | None = None, power: Fraction = 2
) -> None:  # type: ignore[assignment]
    """An extension whose annotations name what is imported for type checkers only."""


def test_plain_types_of_extensions_are_checked_where_other_annotations_cannot_be_read() -> None:
    check_settings("theirs", of_others, {"scale": 2, "limit": None, "power": "any"})
    for settings in ({"scale": "2"}, {"limit": 0.5}):
        with pytest.raises(VitlabError, match=r"theirs\("):
            check_settings("theirs", of_others, settings)


def bounded(model: Any, batches: Any, *, power: Annotated[int, extend.Range(1, 3)] = 2) -> None:
    """An extension that declares bounds."""


def test_bounds_of_extensions_are_checked() -> None:
    with pytest.raises(VitlabError, match=r"theirs\(power=4\): expected an integer from 1 to 3"):
        check_settings("theirs", bounded, {"power": 4})


def signatures() -> list[tuple[str, Callable[..., Any], Any]]:
    """Every function or class of vitlab that takes settings, and the parameters that are not settings."""
    procedures = {**plugins.instruments(), **plugins.stress_tests()}
    found = [(name, importlib.import_module(module).measure, 2) for name, module in procedures.items()]
    injected = ("dim", "layout", "attention", "kinds")
    found += [(name, plugins.part(name), injected) for name in plugins.parts()]
    for known, skip in ((plugins.recipes(), 0), (plugins.assemblies(), 1)):
        found += [(name, getattr(importlib.import_module(module), name), skip) for name, module in known.items()]
    for opened in (catalogue._OPENERS, segmentation_sets._OPENERS, question_catalogue._OPENERS):
        found += [(name, opener, 1) for name, opener in opened.items()]
    return [*found, ("architecture", architecture, 0)]


@pytest.mark.parametrize(
    ("name", "function", "skip"), signatures(), ids=lambda each: each if isinstance(each, str) else ""
)
def test_every_setting_has_an_annotation_that_its_default_fits(name: str, function: Any, skip: Any) -> None:
    for setting in settings_of(function, skip):
        assert setting.annotation is not Any, setting.name
        assert setting.required or fits(setting.default, setting.annotation), setting.name
        plain_number = setting.annotation in (int, float)
        assert not plain_number, f"{name}: {setting.name} has no bounds"


@pytest.mark.parametrize(
    ("use", "name", "settings", "expected"),
    [
        (vitlab.measure, "attention_maps", {"images": 2}, "a list of 1 to 1,000 values, each an integer from 0"),
        (
            vitlab.measure,
            "token_overfocus",
            {"shares": 0.1},
            "a list of 1 to 100 distinct values, each a number above 0",
        ),
        (vitlab.measure, "calibration", {"bins": "x"}, "an integer from 1 to 10,000"),
        (vitlab.measure, "attention_distance", {"renormalise": "False"}, "True or False"),
        (vitlab.measure, "loss_landscape", {"points": 10**6}, "1,000,000,000,000 forwards for each batch"),
        (vitlab.stress, "adversarial", {"epsilons": "8/255"}, "a number from 0 to 1,000, or a list"),
        (vitlab.stress, "adversarial", {"steps": 10**6}, "1,000,000 steps are as many forwards and backwards"),
        (vitlab.stress, "corruptions", {"names": 1}, "one of 'gaussian_noise', 'shot_noise'"),
        (vitlab.stress, "occlusion", {"grid": 1000000}, "needs about 16,000.0 GB for each image"),
        (vitlab.stress, "occlusion", {"seed": "0"}, r"an integer from -2\^63 to 2\^63 - 1"),
    ],
)
def test_instruments_and_stress_tests(use: Any, name: str, settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(VitlabError, match=rf"^{name}\(.*\): expected .*{expected}"):
        use(name, CASES[0].model(), BATCHES, **settings)


def test_scenes_that_exceed_memory_raise_with_the_estimate() -> None:
    with pytest.raises(
        VitlabError, match="2,147,483,647 scenes of 224x224 take about 323 TB of memory and 1,995 hours"
    ):
        catalogue.check_data("scenes(test=0x7fffffff)")


def test_questions_that_exceed_memory_raise_before_drawing() -> None:
    with pytest.raises(VitlabError, match=r"scene_questions needs about 12.6 TB of memory;"):
        question_catalogue.open_questions("scene_questions(train=250000, size=4096)")
