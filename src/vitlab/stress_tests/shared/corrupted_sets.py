"""Errors on sets of corrupted images, by corruption and severity, and what is made of them: mean accuracy and mCE.

Shape legend: c corruptions, s severities, n images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.errors import VitlabError, unknown
from vitlab.corruptions import CORRUPTIONS, EXTRA
from vitlab.stress_tests.shared.file_evaluation import mean_over_sets
from vitlab.stress_tests.shared.mce_baselines import Baseline

SEVERITIES = (1, 2, 3, 4, 5)

Places = Sequence[tuple[str, int]]

#: Which value of `summarise` is the standard error of which.
ERRORS = {
    **{"accuracy": "standard_error", "error": "standard_error"},
    **{name: f"{name}_error" for name in ("ce", "mean_accuracy", "mce")},
}


def summarise(marks: np.ndarray, places: Places, baseline: Baseline | None) -> dict[str, np.ndarray]:
    """Errors, mean accuracy (HDVW), and CE_c = Σ_s E_{s,c} / Σ_s E^AlexNet_{s,c} with its mean over the 15 (TAPADL).

    Hendrycks and Dietterich, ICLR 2019, section 4.2. Standard errors count an image once, in however many sets it is.

    Args:
        marks: (c · s, n) 1 where right, 0 where wrong, NaN where a set lacks the image.
        places: the corruption and the severity of each row, corruption after corruption.
        baseline: AlexNet's errors.

    Returns:
        `accuracy`, `error`, `standard_error` (c, s), NaN where a set is missing; `ce`, `ce_error` (c), NaN where any
        of its severities is missing or no baseline known; `mean_accuracy` over all sets that are there, and `mce`, NaN
        unless all 15 corruptions at all 5 severities are, each with its `…_error` ().

    >>> rows = np.array([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    >>> found = summarise(rows, chosen("fog", (1, 2)), Baseline({}, {"fog": (0.5, 1.0)}))
    >>> found["error"].tolist(), found["ce"].tolist(), float(found["mean_accuracy"])
    ([[0.5, 1.0]], [1.0], 0.25)
    """
    names, severities = axes_of(places).values()
    alex = [baseline.error(name, severities) if baseline else float("nan") for name in names]
    correct = marks.reshape(len(names), len(severities), -1)
    wrong = (1 - correct) / np.array(alex)[:, None, None]
    benchmark = [row for name, row in zip(names, wrong, strict=True) if name in CORRUPTIONS]
    pairs = {"accuracy": np.array([mean_over_sets(row[None]) for row in marks]).reshape(*correct.shape[:2], 2)}
    pairs["ce"] = np.array([_if_whole(row) for row in wrong])
    pairs["mean_accuracy"] = np.array(mean_over_sets(marks))
    pairs["mce"] = np.array(_if_whole(np.concatenate(benchmark)) if is_benchmark(places) else _NOTHING)
    values: dict[str, np.ndarray] = {}
    for name, both in pairs.items():
        values[name], values[f"{name}_error"] = both[..., 0], both[..., 1]
    values["standard_error"], values["error"] = values.pop("accuracy_error"), 1 - values["accuracy"]
    return values


def chosen(names: str | Sequence[str], severities: int | Sequence[int]) -> Places:
    """Corruptions and severities, corruption after corruption, once both are known.

    >>> chosen("fog", (1, 5))
    [('fog', 1), ('fog', 5)]
    """
    asked = [names] if isinstance(names, str) else [*names]
    levels = [severities] if isinstance(severities, int) else [*severities]
    for name in asked:
        if name not in CORRUPTIONS + EXTRA:
            raise unknown("corruption", name, CORRUPTIONS + EXTRA)
    twice = len({*asked}) < len(asked) or len({*levels}) < len(levels)
    if twice or not asked or not levels or any(type(level) is not int or level not in SEVERITIES for level in levels):
        raise VitlabError(f"corruptions {asked} at severities {levels}: give each once, severities of 1 to 5")
    return [(name, level) for name in asked for level in levels]


def axes_of(places: Places) -> dict[str, tuple[Any, ...]]:
    """The labels along both axes."""
    names, levels = (tuple(dict.fromkeys(place[axis] for place in places)) for axis in (0, 1))
    return {"corruption": names, "severity": levels}


def is_benchmark(places: Places) -> bool:
    """Whether these are the 15 corruptions, and perhaps more, at all 5 severities."""
    return {(name, level) for name in CORRUPTIONS for level in SEVERITIES} <= set(places)


_NOTHING = float("nan"), float("nan")


def _if_whole(each: np.ndarray) -> tuple[float, float]:
    """Mean over sets (S, n) and its error; NaN where a set is missing."""
    return mean_over_sets(each) if (~np.isnan(each)).any(1).all() else _NOTHING
