"""TAPADL Table 4: mIoU on Cityscapes, Cityscapes-C and ACDC, FAN-B-Hybrid with SegFormer's decoder."""

from __future__ import annotations

from collections.abc import Iterator

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._checks import Check, better, gain
from vitlab.experiments.robust_token_attention._numbers import Number
from vitlab.experiments.robust_token_attention._segmentation import (
    ACDC,
    ADVERSE,
    CORRUPTED,
    MIOU,
    ON_ACDC,
    segmentation_jobs,
)
from vitlab.experiments.robust_token_attention._variants import TITLES

TITLE = "TAPADL Table 4: robust semantic segmentation"

DIFFERENCES = ON_ACDC

_COLUMNS = ("Cityscapes", "Cityscapes-C", "ACDC")
#: Row -> mIoU on Cityscapes, Cityscapes-C and ACDC.
_QUOTED: dict[str, tuple[float | None, ...]] = {
    "DeepLabv3+ (R101)": (77.1, 39.4, 41.6),
    "ICNet": (65.9, 28.0, None),
    "DilatedNet": (68.6, 30.3, None),
    "Swin-T": (78.1, 47.3, 56.3),
    "SETR": (79.5, 63.1, 60.2),
    "Segformer-B5": (82.4, 65.8, 62.0),
}
_ROWS: dict[str, tuple[float, float, float]] = {
    "plain": (82.2, 67.3, 60.6),
    "tap": (82.7, 69.2, 62.7),
    "adl": (82.4, 69.4, 63.1),
    "tap_adl": (82.9, 69.7, 63.6),
}
_NUMBERS: dict[str, Number] = {"miou": MIOU, "corrupted": CORRUPTED, "adverse": ADVERSE}

PAPER = [
    *(
        Published(row, column, value, runs=False)
        for row, values in _QUOTED.items()
        for column, value in zip(_COLUMNS, values, strict=True)
        if value is not None  # printed as "-"
    ),
    *(
        Published(f"+ {TITLES[arm]}" if TITLES[arm] else "FAN-B-Hybrid", column, value)
        for arm, values in _ROWS.items()
        for column, value in zip(_COLUMNS, values, strict=True)
    ),
]


def _checks() -> Iterator[Check]:
    for arm in ("tap", "adl", "tap_adl"):
        for column, (name, number) in enumerate(_NUMBERS.items()):
            paper = gain(_ROWS, column, "plain", arm, lower=False)
            sentence = f"{TITLES[arm]} raises the mIoU on {_COLUMNS[column]}"
            yield better(Claim(f"{name}_{arm}", sentence, paper, source="Table 4"), number, "plain", arm)


_CHECKS = list(_checks())
CLAIMS = [each.claim for each in _CHECKS]


def plan(scale: Scale) -> list[Job]:
    """All four variants."""
    return segmentation_jobs(scale, tuple(_ROWS), (ACDC,))


def check(results: Results) -> list[Verdict]:
    """Networks are paired by seed."""
    return [each.judge(results) for each in _CHECKS]
