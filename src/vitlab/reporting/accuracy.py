"""How often the models are right: the sentence that a summary opens with, whatever else differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vitlab.reporting.comparison import Number, numbers
from vitlab.reporting.findings import NORMAL, finding
from vitlab.reporting.sections import Section

#: Where the accuracy of a model is found: by kind (any where empty) and value, what it is called, and what makes it %.
ACCURACIES = (
    ("calibration", "accuracy", "Accuracy", 100),
    ("training", "top1", "Top-1 accuracy after the last epoch", 1),
    ("", "clean_accuracy", "Accuracy on untouched images", 100),
)

#: Of how many models a summary tells one by one.
MODELS = 4


def accuracy(sections: Sequence[Section]) -> list[str]:
    """How often the models are right, whatever else differs: the first of `ACCURACIES` that was measured.

    Of many models it names the baseline, the best and the worst.
    """
    for kind, name, called, scale in ACCURACIES:
        for section in (each for each in sections if each.has_baseline and kind in ("", each.kind)):
            tables = {label: numbers(found) for label, found in section.repeats.items()}
            known = {label: table[name] for label, table in tables.items() if name in table}
            if known:
                return [f"{_accuracies(known, called, scale)}."]
    return []


def tells_accuracy(kind: str, name: str) -> bool:
    """Whether a value of a kind is one of `ACCURACIES`.

    >>> tells_accuracy("calibration", "accuracy"), tells_accuracy("lesion", "accuracy")
    (True, False)
    """
    return any(of in ("", kind) and name == value for of, value, _, _ in ACCURACIES)


def _accuracies(known: Mapping[str, Number], called: str, scale: float) -> str:
    labels = list(known)
    if len(labels) > MODELS:
        ranked = sorted(labels, key=lambda label: known[label].value)
        called = f"{called}, baseline, best and worst of {len(labels)} models"
        labels = list(dict.fromkeys((labels[0], ranked[-1], ranked[0])))
    values, halves = ([scale * getattr(known[label], part) for label in labels] for part in ("value", "half_width"))
    return finding(called, values, labels, "%", errors=[half / NORMAL for half in halves])
