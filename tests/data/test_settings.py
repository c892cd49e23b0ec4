"""Settings against annotations: what fits, and what is said where it does not."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import pytest
from vitlab.data.settings import Between, check_settings

from vitlab.core.errors import VitlabError

Ratio = Annotated[float, Between(0, 1, open_low=True, open_high=True)]
Share = Annotated[float, Between(0, 1, open_low=True)]
Count = Annotated[int, Between(1, 9, cost=lambda count: f"{count} cost {2 * count}")]


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
) -> None:
    """A function with an annotation of each kind."""


FITTING = [
    *({"count": value} for value in (1, 9)),
    *({"ratio": value} for value in (0.5, 1e-9)),
    *({"share": value} for value in (1, 1.0, 0.1, None)),
    *({"flag": value} for value in (True, False)),
    *({"kind": value} for value in ("a", 1)),
    *({"size": value} for value in (-4, (4, 5), [4, 5])),
    *({"words": value} for value in (["a"], ("a", "b"), None)),
    {"more": 3},
]

WRONG = [
    *(({"count": value}, "an integer from 1 to 9$") for value in (0, True, 1.0, "1", None, [1])),
    ({"count": 10}, "an integer from 1 to 9; 10 cost 20"),
    *(({"ratio": value}, "a number above 0 and below 1$") for value in (0, 1, math.nan, math.inf, "x", False)),
    *(({"share": value}, "a number above 0 and up to 1, or None$") for value in (0, 1.1, -math.inf, True)),
    *(({"flag": value}, "True or False$") for value in (0, 1, None, "True")),
    *(({"kind": value}, "'a' or 1$") for value in ("b", True, 1.0, ["a"])),
    *(({"size": value}, r"an integer, or \(an integer, an integer\)$") for value in (1.5, (4,), [4, 5, 6], (4, True))),
    *(({"words": value}, "a list, each text in quotes, or None$") for value in ("a", [], [1], {"a": 1})),
    ({"name": 3}, "text in quotes$"),
    ({"more": "3"}, "an integer$"),
    ({"place": 3}, "no setting of it 'place'; there are: name, count, .*, words, more"),
    ({"conut": 3}, "did you mean 'count'"),
]


@pytest.mark.parametrize("settings", FITTING, ids=str)
def test_what_fits(settings) -> None:
    check_settings("it", {"name": "x", **settings}, takes, {"more": int})


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=str)
def test_what_does_not(settings, message) -> None:
    with pytest.raises(VitlabError, match=message):
        check_settings("it", {"name": "x", **settings}, takes, {"more": int})


def test_what_has_no_default_must_be_given() -> None:
    with pytest.raises(VitlabError, match="it requires name; write it"):
        check_settings("it", {"count": 2}, takes, {})
