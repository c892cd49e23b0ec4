"""Average precision of a detector's boxes and masks, with precision-recall curves and pictures of predictions.

The definition is in `shared/average_precision.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np
from torch import nn

from vitlab.assemblies.mask_rcnn import MaskRCNN
from vitlab.core.batches import Batches
from vitlab.core.bounds import Range
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.average_precision import RECALLS, THRESHOLDS, Kind, detect, precision_curves, summary
from vitlab.instruments.shared.detection_examples import Examples

CARD = Card(
    title="average precision of boxes and masks",
    paper="CB Table 7",
    cost="one forward per image",
    inputs="images with objects",
    passes="one",
    needs=("boxes and masks",),
    higher_is_better=True,
    splittable=False,
)

_KINDS: tuple[Kind, Kind] = ("box", "mask")


def measure(model: nn.Module, batches: Iterable[Any], *, examples: Annotated[int, Range(0, 1000)] = 6) -> Measurement:
    """Measure the average precision of a detector.

    Args:
        model: a Mask R-CNN of `vitlab.assemblies`.
        batches: of a `DetectionStream`.
        examples: number of images whose objects and predictions are stored as pictures.

    Returns:
        For boxes and for masks: `box_ap` over all thresholds, `box_ap50` and `box_ap75` at one; `box_ap_by_threshold`
        (threshold), `box_ap50_by_class` (class) and `box_precision` (threshold, recall), the mean over classes. All are
        fractions. Values of classes without an object are NaN. AP is not a mean over images, so that `--repeats` is
        refused.
    """
    if not isinstance(model, MaskRCNN):
        raise VitlabError(
            f"average_precision measures detectors, not {type(model).__name__}; use vitlab/mask_rcnn(backbone='…')"
        )
    classes = tuple(batches.classes) if isinstance(batches, Batches) else ()
    classes = classes or tuple(str(number) for number in range(model.classes))
    pictures = Examples(examples)
    with eval_mode(model):
        found = detect(model, batches, keep=pictures.add)
    values: dict[str, Any] = {}
    for kind in _KINDS:
        curves = precision_curves(found, len(classes), kind)
        values |= {**summary(curves, kind), f"{kind}_ap75": float(np.nanmean(curves[5]))}
        values[f"{kind}_ap_by_threshold"] = np.nanmean(curves, axis=(1, 2))
        values[f"{kind}_ap50_by_class"] = curves[0].mean(0)
        values[f"{kind}_precision"] = np.nanmean(curves, axis=2)
    values["objects"] = np.bincount([entry["category_id"] - 1 for entry in found.objects], minlength=len(classes))
    shown = pictures.values()
    about = provenance(
        device=str(next(model.parameters()).device),
        images=len(found.images),
        data=getattr(batches, "fingerprint", ""),
    )
    return Measurement(
        "average_precision",
        type(model).__name__,
        {**values, **shown},
        {**{name: _dims(name) for name in values}, **pictures.dims()},
        {"threshold": THRESHOLDS, "recall": RECALLS, "class": classes},
        {"examples": examples},
        about,
        pooling={"objects": ("sum",), **dict.fromkeys(shown, ("concatenate", "example"))},
    )


def _dims(name: str) -> tuple[str, ...]:
    known = {"by_threshold": ("threshold",), "by_class": ("class",), "precision": ("threshold", "recall")}
    ends = {end: axes for end, axes in known.items() if name.endswith(end)}
    return next(iter(ends.values()), ("class",) if name == "objects" else ())
