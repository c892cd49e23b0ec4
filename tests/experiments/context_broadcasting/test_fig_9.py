"""CB Fig. 9: gains by number of heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.synthetic import curve, entry, pairs
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import fig_9

HEADS = (1, 3, 6, 12)


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.name == "one head":
        return pairs("training", "top1", "plain, 1 heads", "cb, 1 heads", effects, base=60.0)
    entries = []
    for seed, effect in enumerate(effects):
        for heads in HEADS:
            gain = (effect if heads == 1 else 0.0) if claim.name == "fewer heads" else -effect * np.log2(heads)
            entries += [
                entry(f"plain, {heads} heads", curve(top1=60.0 + heads), seed),
                entry(f"cb, {heads} heads", curve(top1=60.0 + heads + float(gain)), seed),
            ]
    return Results(entries)


def test_the_slope_is_per_doubling_of_the_heads() -> None:
    claim = fig_9.CLAIMS[2]
    assert np.isclose(fig_9.check(example(claim, [0.5, 0.7]))[2].our_value, 0.6)
