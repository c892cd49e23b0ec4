"""Summary of the errors on sets of corrupted images: by corruption and severity, mean accuracy and mCE.

Shape legend: c corruptions, s severities, n images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.corruptions import CORRUPTIONS
from vitlab.stress_tests.shared.file_evaluation import mean_over_sets
from vitlab.stress_tests.shared.mce_baselines import Baseline

SEVERITIES = (1, 2, 3, 4, 5)

#: Pairs of corruption and severity.
Conditions = Sequence[tuple[str, int]]

#: By value of `summarise`, the name of its standard error.
ERRORS = {
    **{"accuracy": "standard_error", "error": "standard_error"},
    **{name: f"{name}_error" for name in ("ce", "mean_accuracy", "mce")},
}


def summarise(correct: np.ndarray, conditions: Conditions, baseline: Baseline | None) -> dict[str, np.ndarray]:
    """Errors, mean accuracy (HDVW), and CE_c = Σ_s E_{s,c} / Σ_s E^AlexNet_{s,c} with its mean over the 15 (TAPADL).

    Hendrycks and Dietterich, ICLR 2019, section 4.2. For standard errors each image is one observation, however many
    sets contain it.

    Args:
        correct: (c · s, n) 1 where the prediction is correct, 0 where it is not, NaN where a set lacks the image.
        conditions: the corruption and the severity of each row, sorted by corruption.
        baseline: AlexNet's errors.

    Returns:
        `accuracy`, `error`, `standard_error` (c, s), NaN where a set is missing; `ce`, `ce_error` (c), NaN where any
        of its severities is missing or there is no baseline; `mean_accuracy` over the available sets, and `mce`, NaN
        unless all 15 corruptions at all 5 severities are available, each with its `…_error` ().

    >>> rows = np.array([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    >>> values = summarise(rows, select_conditions("fog", (1, 2)), Baseline({}, {"fog": (0.5, 1.0)}))
    >>> values["error"].tolist(), values["ce"].tolist(), float(values["mean_accuracy"])
    ([[0.5, 1.0]], [1.0], 0.25)
    """
    names, severities = axes_of(conditions).values()
    alexnet = [baseline.error(name, severities) if baseline else float("nan") for name in names]
    wrong = (1 - correct.reshape(len(names), len(severities), -1)) / np.array(alexnet)[:, None, None]
    benchmark = [row for name, row in zip(names, wrong, strict=True) if name in CORRUPTIONS]
    pairs = {"accuracy": np.array([mean_over_sets(row[None]) for row in correct]).reshape(*wrong.shape[:2], 2)}
    pairs["ce"] = np.array([_if_complete(row) for row in wrong])
    pairs["mean_accuracy"] = np.array(mean_over_sets(correct))
    pairs["mce"] = np.array(_if_complete(np.concatenate(benchmark)) if is_benchmark(conditions) else _MISSING)
    values: dict[str, np.ndarray] = {}
    for name, both in pairs.items():
        values[name], values[f"{name}_error"] = both[..., 0], both[..., 1]
    values["standard_error"], values["error"] = values.pop("accuracy_error"), 1 - values["accuracy"]
    return values


def select_conditions(names: str | Sequence[str], severities: int | Sequence[int]) -> Conditions:
    """Returns all pairs of corruption and severity, sorted by corruption.

    >>> select_conditions("fog", (1, 5))
    [('fog', 1), ('fog', 5)]
    """
    requested = [names] if isinstance(names, str) else [*names]
    levels = [severities] if isinstance(severities, int) else [*severities]
    return [(name, level) for name in requested for level in levels]


def axes_of(conditions: Conditions) -> dict[str, tuple[Any, ...]]:
    """Returns the labels along both axes."""
    names, levels = (tuple(dict.fromkeys(condition[axis] for condition in conditions)) for axis in (0, 1))
    return {"corruption": names, "severity": levels}


def is_benchmark(conditions: Conditions) -> bool:
    """Returns whether the conditions include all 15 corruptions at all 5 severities."""
    return {(name, level) for name in CORRUPTIONS for level in SEVERITIES} <= set(conditions)


_MISSING = float("nan"), float("nan")


def _if_complete(each: np.ndarray) -> tuple[float, float]:
    """Mean over sets (S, n) and its error; NaN if a set is missing."""
    return mean_over_sets(each) if (~np.isnan(each)).any(1).all() else _MISSING
