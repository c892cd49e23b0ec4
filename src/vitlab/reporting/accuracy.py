"""How often the models are right: the sentence that a summary opens with, whatever else differs."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.comparison import numbers
from vitlab.reporting.judging import told
from vitlab.reporting.readings import reading
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
            known = [each for each in section.averaged() if name in numbers(each)]
            if known:
                return [f"{_accuracies(known, name, called, scale)}."]
    return []


def tells_accuracy(kind: str, name: str) -> bool:
    """Whether a value of a kind is one of `ACCURACIES`.

    >>> tells_accuracy("calibration", "accuracy"), tells_accuracy("lesion", "accuracy")
    (True, False)
    """
    return any(of in ("", kind) and name == value for of, value, _, _ in ACCURACIES)


def _accuracies(known: Sequence[Measurement], name: str, called: str, scale: float) -> str:
    shown = list(known)
    if len(shown) > MODELS:
        ranked = sorted(shown, key=lambda each: reading(name)(each)[0])
        called = f"{called}, baseline, best and worst of {len(shown)} models"
        chosen = (shown[0], ranked[-1], ranked[0])
        shown = [each for i, each in enumerate(chosen) if not any(each is before for before in chosen[:i])]
    return told(called, shown, reading(name, scale), "%")
