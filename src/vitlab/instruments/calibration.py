"""Calibration: agreement of confidence and accuracy (HDVW Fig. F.1a).

    ECE = Σ_m (n_m / n) |accuracy_m − confidence_m|,   signed ECE = Σ_m (n_m / n) (confidence_m − accuracy_m)

over bins m of equal width, ((m−1)/M, m/M]. A positive signed ECE is overconfidence.

Shape legend: n images, C classes, M bins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from torch import nn

from vitlab.core.bounds import ImageCount, Range
from vitlab.core.measurement import Card, Measurement
from vitlab.core.pooling import derive
from vitlab.core.provenance import provenance
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.example_images import DIMS, POOLING, ExampleImages
from vitlab.instruments.shared.predictions import Scores, concatenate, device_batches, device_of, predict, score

CARD = Card(
    title="Expected calibration error and reliability diagram",
    paper="HDVW Fig. F.1a",
    cost="one forward",
    inputs="labelled images",
    passes="one",
    higher_is_better=False,
)


#: Pooling rules: how values are computed from per-image predictions.
_POOLING = {
    **{f"{name}_by_image": ("concatenate", "image") for name in ("confidence", "correct", "nll", "brier")},
    "edges": ("constant",),
    "bin_count": ("bin_count", "confidence_by_image", "edges"),
    "bin_accuracy": ("bin_mean", "correct_by_image", "confidence_by_image", "edges"),
    "bin_confidence": ("bin_mean", "confidence_by_image", "confidence_by_image", "edges"),
    "ece": ("expected_calibration_error", "bin_count", "bin_accuracy", "bin_confidence"),
    "signed_ece": ("signed_calibration_error", "bin_count", "bin_accuracy", "bin_confidence"),
    "nll": ("mean_of", "each", "nll_by_image"),
    "brier": ("mean_of", "each", "brier_by_image"),
    "accuracy": ("mean_of", "each", "correct_by_image"),
    "confidence": ("mean_of", "each", "confidence_by_image"),
    "accuracy_interval": ("wilson_interval", "correct_by_image"),
    "nll_interval": ("student_interval", "nll_by_image"),
}


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    bins: Annotated[int, Range(1, 10_000)] = 10,
    images: ImageCount | None = None,
) -> Measurement:
    """Calibration of a classifier and its proper scores.

    Args:
        model: a classifier; it runs in evaluation mode.
        batches: yields (images, targets); targets are class indices, or probabilities whose argmax is the label.
        bins: number of bins of the reliability diagram.
        images: number of images to use. Default: all.

    Returns:
        `ece`, `signed_ece`, `nll` (nats), `brier` (Σ_c (p_c − y_c)², 0 to 2), `accuracy`, `confidence`, all ();
        `accuracy_interval` (Wilson) and `nll_interval` (Student), 95 %, (bound); `bin_count`, `bin_accuracy`,
        `bin_confidence` (bin), NaN for empty bins; `edges` (edge); and `confidence_by_image`, `correct_by_image`,
        `nll_by_image`, `brier_by_image` (image), from which all others are computed. For reports, thumbnails `example`
        (example, row, column, channel) uint8 of the first images, at most 512, their positions `example_index`
        and class names `example_label` (example). Accuracy and confidence of a bin
        are means over the same images. HDVW's released code bins confidence by [(m−1)/M, m/M) instead, so that
        predictions of confidence 1 count for accuracy but not for confidence; this variant is not implemented.
    """
    device = device_of(model)
    with eval_mode(model):
        pairs = device_batches(batches, device, "calibration", images)
        each, examples = [], ExampleImages(batches, getattr(batches, "classes", ()))
        for x, targets in pairs:
            each.append(score(predict(model, x, "calibration"), targets))
            examples.add(x, targets)
    scores = concatenate(each)
    values = {**_values(scores, bins), **examples.values()}
    single: dict[str, tuple[str, ...]] = {
        "edges": ("edge",),
        "accuracy_interval": ("bound",),
        "nll_interval": ("bound",),
    }
    single |= DIMS | {name: ("image",) for name in values if name.endswith("_by_image")}
    dims = {name: single.get(name, ("bin",) if value.ndim else ()) for name, value in values.items()}
    about = provenance(device=str(device), images=len(scores), data=getattr(batches, "fingerprint", ""))
    axes = {"bound": ("low", "high")}
    settings = {"bins": bins, "images": images}
    subject = type(model).__name__
    return Measurement("calibration", subject, values, dims, axes, settings, about, pooling={**_POOLING, **POOLING})


def _values(scores: Scores, bins: int) -> dict[str, np.ndarray]:
    stored = {f"{name}_by_image": np.asarray(value) for name, value in asdict(scores).items()}
    stored["correct_by_image"] = stored["correct_by_image"] > 0.5
    values = derive({**stored, "edges": np.linspace(0.0, 1.0, bins + 1)}, _POOLING)
    return {name: values[name] for name in sorted(values, key=lambda name: name in stored)}  # per-image arrays last
