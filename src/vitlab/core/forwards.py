"""The number of forwards of an instrument or stress test, from the cost that its card declares."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: Forwards that take as long as a forward and its backward: a backward takes about as long as two forwards.
WITH_GRADIENTS = 3

_NUMBERS = {"no": 0, "one": 1, "two": 2, "nine": 9}

#: The setting that a word in a cost stands for.
_SETTINGS = {"corruptions": "names", "masks": "centres"}

#: Products with the Hessian: `15 to 40 products with the Hessian per mini-batch, each about 6 forwards`.
_PRODUCTS = re.compile(r"(\d+) to (\d+) products with the Hessian per mini-batch, each about (\d+) forwards")

#: Forwards of a causal trace.
_LAYERS = "layers × (cells² + prefix tokens + heads + 6) forwards"


def forwards(cost: str, settings: Mapping[str, Any]) -> float | None:
    """The number of forwards over the images, or None if the cost does not state it.

    A forward with its backward counts as three forwards.

    Args:
        cost: of the card, in words.
        settings: all settings, with their defaults, and what the cost counts in the model: `units`, the units that
            are removed, or `layers`, the number of forwards of each layer.

    >>> forwards("two forwards", {}), forwards("one forward and one backward", {}), forwards("units + 1 forwards", {})
    (2, 3, None)
    >>> forwards("units + 1 forwards", {"units": ("blocks.0 MSA", "blocks.0 MLP")})
    3
    >>> forwards("1 + corruptions × severities forwards", {"names": ("fog", "snow"), "severities": 3})
    3
    """
    if found := _PRODUCTS.match(cost):
        few, many, each = map(int, found.groups())
        return (few + many) / 2 * each
    if cost.startswith("for each epsilon 1 (FGSM)"):
        steps = {"fgsm": 1, "pgd": int(settings["steps"])}
        return 1 + WITH_GRADIENTS * _count(settings["epsilons"]) * sum(steps[a] for a in _each(settings["attacks"]))
    if "× 21 points" in cost:
        return int(settings["points"]) ** 2
    if cost.startswith(_LAYERS):
        return sum(settings["layers"]) if "layers" in settings else None
    words = re.match(r"(no|one|two|nine) forwards?\b(.*)", cost)
    if words:
        number = _NUMBERS[words[1]]
        if "over the training set, one over the test set" in words[2]:
            return 2 * number
        return number * WITH_GRADIENTS if "backward" in words[2] or "gradients" in words[2] else number
    terms = re.match(r"1 \+ ([\w +×]+) forwards\b", cost) or re.match(r"(\w+) \+ 1 forwards\b", cost)
    return None if terms is None else _sum(terms[1], settings)


def _sum(terms: str, settings: Mapping[str, Any]) -> int | None:
    """1 plus a sum of products of the lengths of settings; None if a word is not a setting."""
    total = 1
    for term in terms.split(" + "):
        product = 1
        for word in term.split(" × "):
            name = _SETTINGS.get(word, word)
            if name not in settings:
                return None
            product *= _count(settings[name])
        total += product
    return total


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def _count(value: Any) -> int:
    return len(_each(value))
