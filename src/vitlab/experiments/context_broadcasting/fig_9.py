"""CB Fig. 9: ViT-Ti with different numbers of heads, with and without CB.

The numbers of heads are not printed: 1, 3, 6 and 12 are our choice; 3 is that of ViT-Ti.
"""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Claim, Job, Published, Results, Scale, paired
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import claims_of, effect, gain, verdicts_of
from vitlab.experiments.context_broadcasting._shared import Network

TITLE = "CB Fig. 9: gain of CB by number of heads"

PAPER = [Published(row, "top-1 by number of heads", None) for row in ("ViT-Ti", "ViT-Ti + CB")]

#: Numbers of heads at each scale.
HEADS: dict[Scale, tuple[int, ...]] = {"smoke": (1, 2, 4), "small": (1, 3, 6, 12), "full": (1, 3, 6, 12)}


def arm_of(part: str, heads: int) -> str:
    """Returns the name of the arm with a number of heads.

    Args:
        part: the module; '' or `plain` for none.
        heads: of each layer.
    """
    return f"{part or 'plain'}, {heads} heads"


def _gain(results: Results, heads: int) -> dict[int, float]:
    plain, cb = (results.by_seed(arm_of(part, heads), "training", "top1") for part in ("", "cb"))
    return {seed: cb[seed] - plain[seed] for seed in plain if seed in cb}


def _fewer(results: Results) -> list[float]:
    return paired(_gain(results, 3), _gain(results, 1))


def _trend(results: Results) -> list[float]:
    """Minus the slope of the gain over log2 of the number of heads, by seed."""
    heads = HEADS["small"]
    gains = [_gain(results, each) for each in heads]
    seeds = sorted(set.intersection(*(set(each) for each in gains)))
    return [float(-np.polyfit(np.log2(heads), [each[seed] for each in gains], 1)[0]) for seed in seeds]


_CHECKS = [
    gain(
        Claim("one head", "CB raises the top-1 accuracy of ViT-Ti with one head", source="Fig. 9"),
        arm_of("", 1),
        arm_of("cb", 1),
    ),
    effect(
        Claim(
            "fewer heads",
            "the gain in top-1 with CB is larger with one head than with three",
            source="Fig. 9",
            unit="points",
        ),
        _fewer,
    ),
    effect(
        Claim(
            "trend",
            "the gain in top-1 with CB falls with the logarithm of the number of heads",
            source="Fig. 9",
            unit="points per doubling",
        ),
        _trend,
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Training with and without CB for each number of heads."""
    return [
        job
        for heads in HEADS.get(scale, ())
        for part in ("", "cb")
        for job in Network(part, "tiny", heads=heads, repeated=False).jobs(scale, arm_of(part, heads))
    ]


def check(results: Results) -> list[Verdict]:
    """Gains are paired by seed."""
    return verdicts_of(_CHECKS, results)
