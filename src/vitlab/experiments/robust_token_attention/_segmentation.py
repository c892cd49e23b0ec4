"""The segmentation models of TAPADL at each scale, as jobs, and their numbers in per cent.

- `smoke`: UperNet on scenes. `small`: UperNet with DeiT-Ti on CamVid, with the corruptions of Cityscapes-C; there is
  no substitute for ACDC.
- `full`: SegFormer's decoder with FAN-B-Hybrid on Cityscapes, from the weights that the classification recipe trains.
  ACDC's test labels are not public: its validation images are used.
- `released`: none. The published weights are in the layout of MMSegmentation, which is not converted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vitlab.core.experiment import Job, Scale, values_of
from vitlab.core.measurement import Measurement
from vitlab.experiments.robust_token_attention._numbers import Number

ACDC, NIGHT = "acdc", "acdc(condition='night')"
_PROCEDURE = "segmentation_corruptions"
_SUITE = f"{_PROCEDURE}(suite='cityscapes_c')"
_CLEAN = f"{_PROCEDURE}(suite='clean')"
#: Variant -> part and weight of ADL.
_VARIANTS = {"plain": ("", 0.0), "tap": ("tap", 0.0), "adl": ("", 1.0), "tap_adl": ("tap", 1.0)}
_DEIT = "deit_tiny_patch16_224.safetensors"
#: What differs from the paper at `small`.
ON_CAMVID = (
    "UperNet with DeiT-Ti, from its published weights, on CamVid replaces FAN-B-Hybrid with SegFormer's decoder on "
    "Cityscapes, with the corruptions of Cityscapes-C; nothing replaces ACDC."
)
#: What differs from the paper, where images of ACDC are used at `full`.
ON_ACDC: dict[Scale, tuple[str, ...]] = {
    "small": (ON_CAMVID,),
    "full": (
        "mIoU on ACDC is that of its 406 validation images; the paper's is that of its test set, "
        "whose labels are not public.",
    ),
}

#: The released form of ADL gave the paper's numbers.
_FORM = ("objective.diversification_form=released",)


def segmentation_jobs(scale: Scale, arms: Sequence[str], acdc: Sequence[str] = ()) -> list[Job]:
    """Returns the training, Cityscapes-C and ACDC jobs of some variants.

    Args:
        scale: the scale.
        arms: variants, by the name of their arm.
        acdc: data expressions of ACDC, at `full`.
    """
    return [job for arm in arms for job in _jobs(scale, arm, acdc)]


def _jobs(scale: Scale, arm: str, acdc: Sequence[str]) -> list[Job]:
    part, weight = _VARIANTS[arm]
    given = f"part={part!r}, diversification={weight}"
    if scale == "smoke":
        source: dict[str, Any] = {"recipe": f"quick_segmentation({given}, images=32, epochs=1)"}
        suite = f"{_PROCEDURE}(suite='cityscapes_c', severities=(3,))"
        return [Job(arm, "training", **source), Job(arm, suite, images=4, **source)]
    if scale == "small":
        source = {"recipe": f"camvid_upernet({given}, weights='{{root}}/{_DEIT}')", "changes": _FORM}
        source |= {"needs": ("camvid", _DEIT), "gpu_minutes": 10.0, "gigabytes": 0.5}
        seeded = [{**source, "seed": seed} for seed in range(5)]
        return [job for each in seeded for job in (Job(arm, "training", **each), Job(arm, _SUITE, images=233, **each))]
    if scale == "released":
        return []
    pooling = " | TokenAwarePooling(branches=4, blocks='all')" if part else ""
    backbone = "vitlab/fan_base_hybrid(drop_path_rate=0.35, weights='{trained}')" + pooling
    source = {
        "recipe": f'cityscapes_segformer(diversification={weight}, backbone="{backbone}")',
        "trained": f"robust_token_attention(base='fan', pooling={part!r}, diversification={weight})",
        "changes": _FORM,
        "gpu_minutes": 11_000.0,
    }
    jobs = []
    for seed in range(3):
        each = {**source, "seed": seed, "needs": ("imagenet", "cityscapes"), "gigabytes": 165.0}
        jobs += [Job(arm, "training", **each), Job(arm, _SUITE, images=500, **each)]
        adverse = {**each, "needs": ("imagenet", "cityscapes", "acdc"), "gigabytes": 175.0}
        jobs += [Job(arm, _CLEAN, data=data, images=406, **adverse) for data in acdc]
    return jobs


def _scalar(name: str) -> Callable[[Measurement], float]:
    return lambda found: 100 * float(found.values[name])


def _under(corruption: str, kind: str = "") -> Callable[[Measurement], float]:
    """mIoU under one corruption of Cityscapes-C over its severities, or the IoU of a class, without regard to case."""

    def value(found: Measurement) -> float:
        if not kind:
            return 100 * float(values_of(found, "corruption_miou", corruption=corruption))
        rows = [i for i, name in enumerate(found.axes["condition"]) if str(name).startswith(corruption)]
        return _class(found, np.asarray(found.values["class_iou"])[rows], kind)

    return value


def _clean_class(kind: str) -> Callable[[Measurement], float]:
    """The IoU of a class on unmodified images."""
    return lambda found: _class(found, np.asarray(found.values["clean_class_iou"])[None], kind)


def _class(found: Measurement, rows: np.ndarray, kind: str) -> float:
    """The mean over conditions of the IoU of a class, (condition, class) -> number; NaN without this class."""
    names = [str(name).lower() for name in found.axes["class"]]
    return 100 * float(np.mean(rows[:, names.index(kind)])) if kind in names else np.nan


def _on(data: str | None) -> Callable[[Job], bool]:
    """Jobs on a data expression; None for the data of the recipe."""
    return lambda job: job.data == data


def _number(value: Callable[[Measurement], float], data: str | None = None) -> Number:
    return Number((_PROCEDURE,), value, where=_on(data))


MIOU = Number(("training",), lambda found: float(np.asarray(found.values["miou"]).reshape(-1)[-1]))
CORRUPTED = _number(_scalar("mean_miou"))
ADVERSE = _number(_scalar("clean_miou"), ACDC)
AT_NIGHT = _number(_scalar("clean_miou"), NIGHT)
CAR_AT_NIGHT = _number(_clean_class("car"), NIGHT)
IN_SNOW = _number(_under("snow"))
ROAD_IN_SNOW = _number(_under("snow", "road"))
