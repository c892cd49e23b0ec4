"""CB Fig. 7: entropy of the class token's attention (a) and distance of attention (b), with and without CB."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vitlab.core.experiment import Claim, Job, Published, Results, Scale, paired
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import claims_of, effect, gain, verdicts_of
from vitlab.experiments.context_broadcasting._shared import Network

TITLE = "CB Fig. 7: entropy and distance of attention with CB"

PAPER = [
    Published(row, column, None)
    for row in ("ViT-S", "ViT-S + CB")
    for column in ("entropy of the class token by layer", "distance by layer")
]

_ARMS = {"plain": Network(repeated=False), "cb": Network("cb")}
_ENTROPY, _DISTANCE = "attention_entropy", "attention_distance"
_MARGIN = 0.1  # of the distance without CB; the paper says "similar" without a number

Reduce = Callable[[Measurement], float]


def _half(name: str, deep: bool) -> Reduce:
    """Reads the mean of a value over heads and the deep or shallow half of the layers."""

    def reduce(found: Measurement) -> float:
        layers = np.nanmean(found.values[name], axis=1)
        return float(layers[len(layers) // 2 :].mean() if deep else layers[: len(layers) // 2].mean())

    return reduce


def _difference(results: Results, reduce: Reduce) -> dict[int, float]:
    """Entropy without CB minus entropy with CB, by seed."""
    plain, cb = (results.by_seed(arm, _ENTROPY, reduce) for arm in _ARMS)
    return {seed: plain[seed] - cb[seed] for seed in plain if seed in cb}


def _deeper(results: Results) -> list[float]:
    shallow, deep = (_difference(results, _half("class_row", deep)) for deep in (False, True))
    return paired(shallow, deep)


def _curves(results: Results) -> list[tuple[np.ndarray, np.ndarray]]:
    """The distance by layer without and with CB, for each seed."""
    found = [
        {
            job.seed: np.nanmean(each.values["distance"], axis=1)
            for job, each in results.select(arm, "attention_distance")
        }
        for arm in _ARMS
    ]
    return [(found[0][seed], found[1][seed]) for seed in found[0] if seed in found[1]]


def _kept(results: Results) -> list[float]:
    return [float(cb.mean() / plain.mean() - 1 + _MARGIN) for plain, cb in _curves(results)]


def _tendency(results: Results) -> list[float]:
    return [float(np.corrcoef(plain, cb)[0, 1]) - 0.5 for plain, cb in _curves(results)]


_CHECKS = [
    gain(
        Claim(
            "class token",
            "CB lowers the entropy of the class token's attention in the deep half of the layers",
            source="Fig. 7a",
        ),
        "cb",
        "plain",
        _half("class_row", deep=True),
        _ENTROPY,
        unit="nats",
    ),
    gain(
        Claim(
            "all tokens",
            "CB lowers the entropy of the attention of all tokens in the deep half of the layers",
            source="Sec. 3.3",
        ),
        "cb",
        "plain",
        _half("mean", deep=True),
        _ENTROPY,
        unit="nats",
    ),
    effect(
        Claim(
            "deeper is more",
            "CB lowers the class token's entropy more in the deep half of the layers than in the shallow half",
            source="Sec. 3.3: especially in deeper layers",
            unit="nats",
        ),
        _deeper,
    ),
    effect(
        Claim(
            "distance kept",
            "with CB the mean distance of attention is at most 10 % shorter",
            source="Fig. 7b: CB does not hurt the range; 10 % is our choice",
        ),
        _kept,
    ),
    effect(
        Claim(
            "same tendency",
            "the distance by layer with CB correlates by more than 0.5 with that without CB",
            source="Sec. 3.3: a similar tendency; 0.5 is our choice",
        ),
        _tendency,
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Both instruments on the trained networks."""
    images = 16 if scale == "smoke" else 1000
    return [
        job for arm, network in _ARMS.items() for job in network.jobs(scale, arm, _ENTROPY, _DISTANCE, images=images)
    ]


def check(results: Results) -> list[Verdict]:
    """Paired by seed."""
    return verdicts_of(_CHECKS, results)
