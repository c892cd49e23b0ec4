"""TAPADL Table 6: TAP in the shallow, the other, or all blocks of FAN-B-Hybrid, without ADL.

Shallow is the first 30 % of the blocks. At `small` ViT-Ti on CIFAR-100 replaces FAN-B-Hybrid.
"""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Claim, Job, Published, Results, Scale, judged
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._checks import Check, better, gain
from vitlab.experiments.robust_token_attention._numbers import (
    ACCURACY,
    CORRUPTIONS,
    GINI_UNIT,
    MCE,
    ON_CIFAR100,
    OVERFOCUS,
    TOP1,
    Number,
)
from vitlab.experiments.robust_token_attention._variants import PLAIN, TAP, jobs, pooled

TITLE = "TAPADL Table 6: the blocks that have TAP"

DIFFERENCES = ON_CIFAR100

#: Variant -> top-1 and mCE.
_ROWS: dict[str, tuple[float, float]] = {
    "plain": (83.9, 46.1),
    "shallow": (84.1, 45.7),
    "middle_deep": (84.3, 45.0),
    "tap": (84.3, 44.9),
}
_TITLES = {
    "plain": "Baseline",
    "shallow": "TAP (Shallow)",
    "middle_deep": "TAP (Middle+Deep)",
    "tap": "TAP (All)",
}
_VARIANTS = (
    PLAIN,
    pooled("shallow", "TokenAwarePooling(blocks=':30%')", allocation="shallow"),
    pooled("middle_deep", "TokenAwarePooling(blocks='30%:')", allocation="middle_deep"),
    TAP,
)
_SHALLOW = 0.3

PAPER = [
    Published(_TITLES[arm], column, value)
    for arm, row in _ROWS.items()
    for column, value in zip(("ImageNet", "ImageNet-C"), row, strict=True)
]


def _gain(arm: str, number: Number, against: str = "plain") -> Check:
    name, column = ("mce", 1) if number.lower else ("top1", 0)
    what = "a lower mCE" if number.lower else "a higher top-1 accuracy"
    end = "" if against == "plain" else f"_against_{against}"
    sentence = f"{_TITLES[arm]} has {what} than {_TITLES[against]}"
    paper = gain(_ROWS, column, against, arm, lower=number.lower)
    return better(Claim(f"{name}_{arm}{end}", sentence, paper, source="Table 6"), number, against, arm)


def _deep_minus_shallow(found: Measurement) -> float:
    """Gini coefficient of the attention that tokens receive: middle and deep layers minus shallow ones."""
    layers = np.asarray(found.values["gini_of_mean"])
    shallow = max(1, round(_SHALLOW * len(layers)))
    return float(layers[shallow:].mean() - layers[:shallow].mean())


_DEEPER = Claim(
    "overfocus_deep",
    "attention of the baseline overfocuses more in its middle and deep layers than in its shallow layers",
    source="Sec. 5.3",
    unit=GINI_UNIT,
)


def _judge_deeper(results: Results) -> Verdict:
    number = Number(("token_overfocus",), _deep_minus_shallow)
    return judged(_DEEPER, list(number.of(results, "plain").values()))


_CHECKS = [
    *(_gain(arm, number) for arm in ("shallow", "middle_deep", "tap") for number in (TOP1, MCE)),
    _gain("tap", MCE, "shallow"),
    _gain("tap", MCE, "middle_deep"),
    Check(_DEEPER, _judge_deeper),
]
CLAIMS = [each.claim for each in _CHECKS]


def plan(scale: Scale) -> list[Job]:
    """All allocations; of published weights only the baseline's attention."""
    attention = jobs(scale, (PLAIN,), (OVERFOCUS,))
    return attention if scale == "released" else attention + jobs(scale, _VARIANTS, (ACCURACY, CORRUPTIONS))


def check(results: Results) -> list[Verdict]:
    """Networks are paired by seed."""
    return [each.judge(results) for each in _CHECKS]
