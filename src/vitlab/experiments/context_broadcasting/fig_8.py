"""CB Fig. 8: the learned weights Λ of CB_S by layer.

The paper does not say whether the average is of λ or of |λ|, nor of which the quantiles are: both are judged.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import claims_of, effect, verdicts_of
from vitlab.experiments.context_broadcasting._shared import Network

TITLE = "CB Fig. 8: scaling weights of CB_S by layer"

PAPER = [Published("ViT-S + CB_S", "ratio by layer", None), Published("ViT-S + CB_S", "average by layer", None)]

#: Value of the instrument -> its name in the sentence.
_VALUES = {
    "ratio": "the ratio of the 10 % and 90 % quantiles of |λ|",
    "ratio_signed": "the ratio of the absolute values of the 10 % and 90 % quantiles of λ",
    "mean": "the average of λ",
    "mean_absolute": "the average of |λ|",
}


def _rank_correlation(values: np.ndarray) -> float:
    """Spearman's correlation of values with their position; 0 if all are equal.

    >>> _rank_correlation(np.array([0.1, 0.2, 0.9])), _rank_correlation(np.ones(3))
    (1.0, 0.0)
    """
    ranks = np.array([(values < each).sum() + (values == each).sum() / 2 for each in values])
    if np.ptp(ranks) == 0:
        return 0.0
    return round(float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]), 12)


def _effects(results: Results, value: str) -> list[float]:
    def correlation(found: Measurement) -> float:
        return _rank_correlation(found.values[value])

    return list(results.by_seed("cb_s", "broadcast_scale", correlation).values())


_CHECKS = [
    effect(
        Claim(value, f"{words} increases with depth (rank correlation above 0)", source="Sec. 3.3, Fig. 8"),
        partial(_effects, value=value),
    )
    for value, words in _VALUES.items()
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """The weights of the trained networks; no images."""
    return Network("cb_s").jobs(scale, "cb_s", "broadcast_scale")


def check(results: Results) -> list[Verdict]:
    """One effect per seed."""
    return verdicts_of(_CHECKS, results)
