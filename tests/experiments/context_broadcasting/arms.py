"""Synthetic measurements of the columns of CB's tables, with the axes that the instruments give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.synthetic import curve, entry, layered, measured
from vitlab.core.experiment import Results
from vitlab.core.measurement import Measurement

#: Columns that are metrics of the training run.
METRICS = {"Acc@1": "top1", "Acc@5": "top5"}


def column(name: str, value: float) -> Measurement:
    """The measurement from which a column in per cent is read; its other numbers are wrong on purpose."""
    share, wrong = value / 100, 0.123
    if name in METRICS:
        return curve(**{"top1": wrong, "top5": wrong, METRICS[name]: value})
    if name == "IN-V2":
        sets = ("matched-frequency", "threshold-0.7", "top-images")
        return layered("imagenet_v2", {"set": sets}, accuracy=(("set",), [share, wrong, wrong]))
    if name == "IN-ReaL":
        return measured("imagenet_real", accuracy=share, original_accuracy=wrong)
    if name == "Occ":
        masks = ("centre 0.5", "patches 0.1")
        return layered("occlusion", {"mask": masks}, accuracy=(("mask",), [share, wrong]), clean_accuracy=((), wrong))
    if name == "ImageNet-A":
        return measured("imagenet_a", accuracy_200=share, accuracy_1000=wrong)
    assert name == "FGSM"
    axes = {"attack": ("fgsm", "pgd"), "epsilon": (1.0, 2.0)}
    values = [[share, wrong], [wrong, wrong]]
    return layered("adversarial", axes, accuracy=(("attack", "epsilon"), values))


def gains(name: str, first: str, second: str, effects: Sequence[float], base: float = 60.0) -> Results:
    """Results in which a column of the second arm is higher than that of the first by the effects, in points."""
    return Results(
        [
            entry(arm, column(name, base + (effect if arm == second else 0.0)), seed)
            for seed, effect in enumerate(effects)
            for arm in (first, second)
        ]
    )


def metrics(
    value: str, first: str, second: str, effects: Sequence[float], base: float = 30.0, others: Sequence[str] = ()
) -> Results:
    """Training runs in which a metric of the second arm is higher than that of the first; other metrics are equal."""
    return Results(
        [
            entry(arm, curve(**{**dict.fromkeys(others, base), value: base + (effect if arm == second else 0.0)}), seed)
            for seed, effect in enumerate(effects)
            for arm in (first, second)
        ]
    )


def counts(arm: str, parameters: float = 0, macs: float = 0, added_macs: float = 0) -> tuple:
    """The entry of a job `sizes`."""
    return entry(arm, measured("sizes", parameters=parameters, macs=macs, added_macs=added_macs), model="timm/any")


def parts(arm: str, measurements: Sequence[Measurement]) -> Results:
    """The measurements of one model on parts of the images."""
    count = len(measurements)
    return Results(
        [
            entry(arm, replace(found, provenance={"part": [place + 1, count]}), model="timm/any")
            for place, found in enumerate(measurements)
        ]
    )
