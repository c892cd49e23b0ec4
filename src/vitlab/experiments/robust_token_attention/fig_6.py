"""TAPADL Fig. 6: segmentation of two images, with snow and at night, FAN-B-Hybrid with SegFormer's decoder.

The paper shows two images. The claims extend what it says about them to all images: road in snow, cars at night.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._checks import better
from vitlab.experiments.robust_token_attention._segmentation import (
    AT_NIGHT,
    CAR_AT_NIGHT,
    IN_SNOW,
    NIGHT,
    ON_CAMVID,
    ROAD_IN_SNOW,
    segmentation_jobs,
)

TITLE = "TAPADL Fig. 6: segmentation in snow and at night"

DIFFERENCES: dict[Scale, tuple[str, ...]] = {
    "small": (ON_CAMVID,),
    "full": (
        "The paper shows two images. IoU at night is that of all night images of ACDC's validation set, because the "
        "labels of its test set are not public; snow is that of Cityscapes-C.",
    ),
}

PAPER = [
    Published(row, column, None)
    for row in ("FAN-B-Hybrid", "FAN-B-Hybrid + TAP & ADL")
    for column in ("segmentation of an image with snow", "segmentation of an image at night")
]

_CHECKS = [
    better(Claim(name, sentence, source="Fig. 6, Sec. 4.2.2"), number, "plain", "tap_adl")
    for name, sentence, number in (
        ("snow_tap_adl", "TAP & ADL raises the mIoU on images with snow", IN_SNOW),
        ("road_tap_adl", "TAP & ADL raises the IoU of road on images with snow", ROAD_IN_SNOW),
        ("night_tap_adl", "TAP & ADL raises the mIoU on images at night", AT_NIGHT),
        ("car_tap_adl", "TAP & ADL raises the IoU of cars on images at night", CAR_AT_NIGHT),
    )
]
CLAIMS = [each.claim for each in _CHECKS]


def plan(scale: Scale) -> list[Job]:
    """The baseline and TAP & ADL."""
    return segmentation_jobs(scale, ("plain", "tap_adl"), (NIGHT,))


def check(results: Results) -> list[Verdict]:
    """Networks are paired by seed."""
    return [each.judge(results) for each in _CHECKS]
