"""The accuracy of the models: the first sentence of the summary."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.comparison import numbers
from vitlab.reporting.headline import describe_number
from vitlab.reporting.readings import reading
from vitlab.reporting.sections import Section

#: Values that hold an accuracy: kind (empty: any), name of the value, name in the summary, and the factor to percent.
ACCURACIES = (
    ("calibration", "accuracy", "Accuracy", 100),
    ("training", "top1", "Top-1 accuracy after the last epoch", 1),
    ("", "clean_accuracy", "Accuracy on clean images", 100),
)

#: The maximum number of models that a summary lists one by one.
MODELS = 4


def accuracy(sections: Sequence[Section]) -> list[str]:
    """A sentence with the accuracy of the models: the first of `ACCURACIES` that was measured.

    With more than `MODELS` models the sentence has the baseline, the best and the worst.
    """
    several = len({label for section in sections for label in section.repeats}) > 1
    for kind, name, title, scale in ACCURACIES:
        for section in (each for each in sections if each.has_baseline and kind in ("", each.kind)):
            known = [each for each in section.averaged() if name in numbers(each)]
            if known:
                title = f"{title} of {known[0].subject}" if several and len(known) == 1 else title
                return [f"{_accuracies(known, name, title, scale)}."]
    return []


def is_accuracy(kind: str, name: str) -> bool:
    """Whether a value of a kind is one of `ACCURACIES`.

    >>> is_accuracy("calibration", "accuracy"), is_accuracy("lesion", "accuracy")
    (True, False)
    """
    return any(one in ("", kind) and name == value for one, value, _, _ in ACCURACIES)


def _accuracies(known: Sequence[Measurement], name: str, title: str, scale: float) -> str:
    shown = list(known)
    if len(shown) > MODELS:
        ranked = sorted(shown, key=lambda each: reading(name)(each)[0])
        title = f"{title}, baseline, best and worst of {len(shown)} models"
        chosen = (shown[0], ranked[-1], ranked[0])
        shown = [each for i, each in enumerate(chosen) if not any(each is before for before in chosen[:i])]
    return describe_number(title, shown, reading(name, scale), "%").sentence
