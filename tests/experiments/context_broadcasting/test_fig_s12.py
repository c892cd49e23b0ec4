"""CB Fig. S12: deep against shallow layers, distilled against plain."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import parts
from experiments.synthetic import layered, merged
from vitlab.core.experiment import Claim, Results
from vitlab.core.measurement import Measurement


def by_layer(kind: str, name: str, layers: Sequence[float]) -> Measurement:
    values = {"mean": [1.0] * len(layers), "normalised": [0.5] * len(layers), "attended": [0.3] * len(layers)}
    by_head = {key: [[each - 0.1, each + 0.1] for each in value] for key, value in {**values, name: layers}.items()}
    return layered(kind, {}, **{key: (("layer", "head"), value) for key, value in by_head.items()})


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.name == "plain is sparse":
        plain = [by_layer("attention_entropy", "normalised", [0.4, 0.6]) for _ in effects]
        distilled = [by_layer("attention_entropy", "normalised", [0.4 + effect, 0.6 + effect]) for effect in effects]
        return merged(parts("plain", plain), parts("distilled", distilled))
    kind, name = {
        "deep is dense": ("attention_entropy", "mean"),
        "deep is global": ("attention_distance", "attended"),
    }[claim.name]
    return parts("plain", [by_layer(kind, name, [1.0, 3.0, 2.0 + effect, 2.0 + effect]) for effect in effects])
