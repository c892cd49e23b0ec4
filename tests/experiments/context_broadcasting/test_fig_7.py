"""CB Fig. 7: deep and shallow layers, and the margin of the distance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.synthetic import entry, layered, merged
from vitlab.core.experiment import Claim, Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.context_broadcasting import fig_7

LAYERS = ("a", "b", "c", "d")


def entropy(class_deep: float = 0.0, all_deep: float = 0.0, class_shallow: float = 0.0) -> Measurement:
    values = {"class_row": [class_shallow] * 2 + [class_deep] * 2, "mean": [7.0] * 2 + [all_deep] * 2}
    by_head = {name: (("layer", "head"), np.repeat(np.array(each)[:, None], 2, 1)) for name, each in values.items()}
    return layered("attention_entropy", {"layer": LAYERS, "head": (0, 1)}, **by_head)


def distance(layers: Sequence[float]) -> Measurement:
    values = np.array(layers)[:, None]
    return layered("attention_distance", {"layer": LAYERS, "head": (0,)}, distance=(("layer", "head"), values))


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.name in ("distance kept", "same tendency"):
        plain = np.array([1.0, 2.0, 3.0, 4.0])
        results = []
        for seed, effect in enumerate(effects):
            # Correlations are bounded: effects stand for their sign and spread.
            other = plain * (1 + effect - 0.1)
            if claim.name == "same tendency":
                other = plain if effect > 0.5 else -plain if effect < -5 else np.array([1.0, -1.0, -1.0, 1.0])
            results += [entry("plain", distance(plain), seed), entry("cb", distance(other), seed)]
        return Results(results)
    base, changed = {
        "class token": (entropy(class_deep=1.0), lambda effect: entropy(class_deep=1.0 - effect)),
        "all tokens": (entropy(all_deep=1.0), lambda effect: entropy(all_deep=1.0 - effect)),
        "deeper is more": (entropy(), lambda effect: entropy(class_deep=-effect - 3.0, class_shallow=-3.0)),
    }[claim.name]
    return merged(
        Results([entry("plain", base, seed) for seed in range(len(effects))]),
        Results([entry("cb", changed(effect), seed) for seed, effect in enumerate(effects)]),
    )


def test_a_longer_distance_is_not_shorter() -> None:
    kept = next(index for index, claim in enumerate(fig_7.CLAIMS) if claim.name == "distance kept")
    for factor, outcome in ((1.5, "holds"), (0.95, "holds"), (0.8, "does not hold")):
        entries = [
            entry(arm, distance(scale * np.array([1.0, 2.0, 3.0, 4.0 + 0.01 * seed])), seed)
            for arm, scale in (("plain", 1.0), ("cb", factor))
            for seed in range(3)
        ]
        assert fig_7.check(Results(entries))[kept].outcome == outcome
