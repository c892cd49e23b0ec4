"""Measurements of a trained network after its last epoch."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

import vitlab
from vitlab.core.batches import Batches
from vitlab.core.measurement import Measurement
from vitlab.modules.context_broadcast import ScaledContextBroadcast

__all__ = ["Extent", "measure_network", "plain"]

#: The stored values, by instrument or stress test.
KEPT: Mapping[str, tuple[str, ...]] = {
    "calibration": ("accuracy", "nll", "ece", "signed_ece", "brier", "confidence"),
    "attention_entropy": ("mean", "class_row"),
    "attention_diversity": ("head_similarity", "row_similarity", "self_mass", "neighbourhood_mass"),
    "diversified_rows": ("row_similarity",),
    "token_overfocus": ("top1", "gini", "top1_of_mean", "gini_of_mean"),
    "attention_stability": ("mean", "overall", "distribution"),
    "broadcast_scale": ("ratio", "ratio_signed", "mean", "mean_absolute"),
    "corruptions": ("accuracy", "mean_accuracy", "mce", "ce", "clean_accuracy"),
    "occlusion": ("accuracy", "clean_accuracy"),
    "adversarial": ("accuracy", "clean_accuracy"),
}


@dataclass(frozen=True)
class Extent:
    """Extent of the measurements.

    Args:
        attention: images whose attention is measured.
        corruptions: settings of the stress test; by default all 15 corruptions at all 5 severities on 2,000 images.
        occlusion: likewise; the centre mask covers half of each side, a quarter of the image, as in CB.
        adversarial: likewise; FGSM and PGD at ε = 1/255 on 2,000 images.
    """

    attention: int = 1000
    corruptions: Mapping[str, Any] = field(default_factory=lambda: {"images": 2000})
    occlusion: Mapping[str, Any] = field(default_factory=lambda: {"centres": (0.5,), "ratios": (0.3, 0.5, 0.7)})
    adversarial: Mapping[str, Any] = field(default_factory=lambda: {"images": 2000, "epsilons": (1.0,), "steps": 10})


def measure_network(
    model: nn.Module, batches: Batches, extent: Extent, failed: Callable[[str, str], None]
) -> dict[str, Any]:
    """Returns all measurements of a network as plain numbers by name; failed ones are reported and skipped.

    Args:
        model: the network.
        batches: the images to measure on; the items are a list of (images, labels).
        extent: how much is measured.
        failed: called with the name and the traceback of a measurement that failed.
    """
    few = _first(batches, extent.attention)
    work: dict[str, Callable[[], Measurement]] = {
        "calibration": lambda: vitlab.measure("calibration", model, batches),
        "attention_entropy": lambda: vitlab.measure("attention_entropy", model, few),
        "attention_diversity": lambda: vitlab.measure("attention_diversity", model, few),
        "diversified_rows": lambda: vitlab.measure("attention_diversity", model, few, tau=2.0, heads="mean"),
        "token_overfocus": lambda: vitlab.measure("token_overfocus", model, few),
        "attention_stability": lambda: vitlab.measure("attention_stability", model, few),
        "corruptions": lambda: vitlab.stress("corruptions", model, batches, **extent.corruptions),
        "occlusion": lambda: vitlab.stress("occlusion", model, batches, **extent.occlusion),
        "adversarial": lambda: vitlab.stress("adversarial", model, batches, **extent.adversarial),
    }
    if any(isinstance(part, ScaledContextBroadcast) for part in model.modules()):
        work["broadcast_scale"] = lambda: vitlab.measure("broadcast_scale", model, ())
    found: dict[str, Any] = {}
    for name, run in work.items():
        began = time.monotonic()
        try:
            found[name] = _kept(name, run())
        except Exception:  # keep the other measurements of the network
            failed(name, traceback.format_exc())
            continue
        found[name]["seconds"] = round(time.monotonic() - began, 3)
    return found


def plain(value: Any) -> Any:
    """Numbers of seven digits, lists, dicts and texts; what is not finite becomes None.

    >>> plain({"a": np.array([1 / 3, np.nan])})
    {'a': [0.3333333, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value


def _kept(name: str, found: Measurement) -> dict[str, Any]:
    values = {key: found.values[key] for key in KEPT[name]}
    axes = {axis for key in values for axis in found.dims[key]}
    labels = {axis: found.axes[axis] for axis in sorted(axes) if axis in found.axes}
    about = {"axes": labels, "settings": found.settings, "images": found.provenance.get("images")}
    return dict(plain({**values, **about}))


def _first(batches: Batches, count: int) -> Batches:
    """Returns the first `count` images, in whole batches."""
    kept, seen = [], 0
    for images, labels in batches:
        if seen < count:
            kept.append((images[: count - seen], labels[: count - seen]))
            seen += len(images)
    return Batches(kept, batches.mean, batches.std, batches.classes, batches.fingerprint)
