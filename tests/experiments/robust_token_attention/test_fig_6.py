"""TAPADL Fig. 6: the jobs in snow and at night are distinguished, and classes are found by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.synthetic import entry, layered
from vitlab.core.experiment import Claim, Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.robust_token_attention import fig_6
from vitlab.experiments.robust_token_attention._segmentation import NIGHT

CLASSES = ("Sky", "Road", "Car")


def corrupted(snow: float = 0.5, road: float = 0.5) -> Measurement:
    """Cityscapes-C at two severities of fog and snow; the IoU of road differs between severities."""
    iou = np.full((4, 3), 0.5)
    iou[2, 1], iou[3, 1] = road + 0.1, road - 0.1
    return layered(
        "segmentation_corruptions",
        {"corruption": ("fog", "snow"), "condition": ("fog 1", "fog 2", "snow 1", "snow 2"), "class": CLASSES},
        mean_miou=((), 0.5),
        clean_miou=((), 0.5),
        corruption_miou=(("corruption",), [0.5, snow]),
        class_iou=(("condition", "class"), iou),
        clean_class_iou=(("class",), [0.5] * 3),
    )


def clean(miou: float = 0.5, car: float = 0.5) -> Measurement:
    return layered(
        "segmentation_corruptions",
        {"class": CLASSES},
        clean_miou=((), miou),
        clean_class_iou=(("class",), [0.5, 0.5, car]),
    )


def example(claim: Claim, effects: Sequence[float]) -> Results:
    make = {
        "snow": lambda value: corrupted(snow=value),
        "road": lambda value: corrupted(road=value),
        "night": lambda value: clean(miou=value),
        "car": lambda value: clean(car=value),
    }
    kind = claim.name.partition("_")[0]
    data = {"data": NIGHT} if kind in ("night", "car") else {}
    return Results(
        [
            entry(arm, make[kind](0.5 + effect / 100 * (arm == "tap_adl")), seed, **data)
            for seed, effect in enumerate(effects)
            for arm in ("plain", "tap_adl")
        ]
    )


def test_results_in_snow_do_not_decide_the_claim_on_night() -> None:
    outcomes = [verdict.outcome for verdict in fig_6.check(example(fig_6.CLAIMS[0], [0.9, 1.0, 1.1]))]
    assert outcomes == ["holds", "inconclusive", "not run", "not run"]  # the IoU of road is equal in both


def test_data_without_a_road_is_not_judged() -> None:
    found = layered(
        "segmentation_corruptions",
        {"corruption": ("snow",), "condition": ("snow 3",), "class": ("circle",)},
        corruption_miou=(("corruption",), [0.5]),
        class_iou=(("condition", "class"), [[0.5]]),
        clean_class_iou=(("class",), [0.5]),
    )
    verdicts = fig_6.check(Results([entry(arm, found) for arm in ("plain", "tap_adl")]))
    assert [verdict.outcome for verdict in verdicts] == ["inconclusive", "not run", "not run", "not run"]
