"""CB Fig. 8: rank correlation with depth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from experiments.synthetic import entry, layered
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import fig_8

NAMES = ("ratio", "ratio_signed", "mean", "mean_absolute")


def example(claim: Claim, effects: Sequence[float]) -> Results:
    """Rank correlations are 1, 0 or -1: the effects give their signs."""
    rising = np.array([0.1, 0.2, 0.5, 0.9])
    entries = []
    for seed, effect in enumerate(effects):
        values = {name: np.array([0.3, 0.1, 0.2, 0.2]) for name in NAMES}
        values[claim.name] = rising if effect > 0 else rising[::-1] if effect < 0 else np.ones(4)
        found = layered("broadcast_scale", {}, **{name: (("layer",), value) for name, value in values.items()})
        entries.append(entry("cb_s", found, seed))
    return Results(entries)


@pytest.mark.parametrize("values", [[3.0, 1.0, 2.0, 5.0, 4.0], [0.5, 0.25, 0.25, 0.75]])
def test_rank_correlation_is_that_of_scipy(values: list[float]) -> None:
    from scipy.stats import spearmanr

    ours = fig_8._rank_correlation(np.array(values))
    assert ours == pytest.approx(spearmanr(values, range(len(values))).statistic)
