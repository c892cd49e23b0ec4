"""Synthetic results for the claims of TAPADL, whose names say what is compared: `NUMBER_ARM` or
`NUMBER_ARM_against_ARM`.

`parameters_ARM` and `flops_ARM` are counts; `evaluated_NUMBER_ARM` is a number of published weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.synthetic import curve, entry, measured
from vitlab.core.experiment import Claim, Results
from vitlab.core.measurement import Measurement

MODEL = "vitlab/fan_base_hybrid"


#: The first two layers of numbers that are read in the last one.
WRONG = ([9.0, 0.0], [5.0, 5.0])


def diversity(**values: object) -> Measurement:
    """A measurement of three layers and two heads; values that are not given are 0."""
    names = ("row_similarity", "self_mass", "neighbourhood_mass")
    return measured(
        "attention_diversity", **{"head_similarity": [0, 0, 0], **dict.fromkeys(names, [[0, 0]] * 3), **values}
    )


#: Number -> a measurement with this value, in per cent or as a fraction of 1.
FOUND: dict[str, Callable[[float], Measurement]] = {
    "top1": lambda value: curve(top1=value),
    "mce": lambda value: measured("corruptions", mce=value / 100, mean_accuracy=0.5),
    "mfr": lambda value: measured("imagenet_p", mfr=value / 100),
    "adversarial": lambda value: measured("imagenet_a", accuracy_200=value / 100, accuracy_1000=0),
    "renditions": lambda value: measured("imagenet_r", accuracy_200=value / 100, accuracy_1000=0),
    "similarity": lambda value: measured("attention_stability", overall=value),
    "gini": lambda value: measured("token_overfocus", gini_of_mean=[9.0, -value, value]),
    "heads": lambda value: diversity(head_similarity=[value - 1, value + 1]),
    "rows": lambda value: diversity(row_similarity=[*WRONG, [value - 1, value + 1]]),
    "self": lambda value: diversity(self_mass=[*WRONG, [value - 1, value + 1]]),
    "around": lambda value: diversity(
        neighbourhood_mass=[*WRONG, [value + 0.3] * 2], self_mass=[[0.0] * 2, [0.0] * 2, [0.3] * 2]
    ),
    "local": lambda value: diversity(neighbourhood_mass=[*WRONG, [0.1, 0.1 + value]]),
}
LOWER = {"mce", "mfr", "gini", "heads", "rows"}


def example(claim: Claim, effects: Sequence[float]) -> Results:
    number, _, rest = claim.name.partition("_")
    if number in ("parameters", "flops"):
        counts = {"parameters": effects[0] * 1e6, "macs": effects[0] * 1e9}
        return Results([entry(rest, measured("sizes", **counts), model=MODEL)])
    if number == "evaluated":
        number, _, arm = rest.partition("_")
        value = effects[0]
        found = measured("calibration", accuracy=value / 100) if number == "top1" else FOUND[number](value)
        return Results([entry(arm, found, model=MODEL)])
    second, _, first = rest.partition("_against_")
    base, _, variant = second.partition("_")
    first = first or (f"{base}_plain" if base in ("fan", "rvt", "deit", "swin") and variant else "plain")
    return compared(FOUND[number], first, second, effects, -1.0 if number in LOWER else 1.0)


def compared(
    found: Callable[[float], Measurement], first: str, second: str, effects: Sequence[float], sign: float = 1.0
) -> Results:
    """Results in which the arm `second` is better than `first` by these effects, one per seed."""
    start = 50.0
    return Results(
        [
            entry(arm, found(start + (sign * effect if arm == second else 0.0)), seed)
            for seed, effect in enumerate(effects)
            for arm in (first, second)
        ]
    )
