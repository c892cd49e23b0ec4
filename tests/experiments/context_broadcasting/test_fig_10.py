"""CB Fig. 10: entropy and attended keys of the last layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.synthetic import entry, layered
from vitlab.core.experiment import Claim, Results
from vitlab.core.measurement import Measurement


def entropy(last: float) -> Measurement:
    return layered("attention_entropy", {}, mean=(("layer", "head"), [[9.0, 9.0], [last - 1, last + 1]]))


def maps(attended: int) -> Measurement:
    """One map with 1,000 keys, of which some are attended."""
    values = np.zeros((1, 1, 1, 1000))
    values[..., :attended] = 0.01
    dims = ("image", "head", "query", "key")
    return layered("attention_maps", {}, **{"blocks.11": (dims, values)}, key_grid=(("layer", "side"), [[2, 500]]))


def example(claim: Claim, effects: Sequence[float]) -> Results:
    entries = []
    for seed, effect in enumerate(effects):
        if claim.name == "entropy":
            pair = entropy(3.0), entropy(3.0 - effect)
        else:  # shares of the keys, so that a tenth of the effects stands for them
            pair = maps(500), maps(500 - round(40 * effect))
        entries += [entry("plain", pair[0], seed), entry("cb", pair[1], seed)]
    return Results(entries)
