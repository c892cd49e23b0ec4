"""Calibration: whether a model is right as often as it says (HDVW Fig. F.1a).

    ECE = Σ_m (n_m / n) |accuracy_m − confidence_m|,   signed ECE = Σ_m (n_m / n) (confidence_m − accuracy_m)

over bins m of equal width, ((m−1)/M, m/M]. A positive signed ECE is overconfidence.

Shape legend: n images, C classes, M bins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.core.statistics import mean_interval, proportion_interval
from vitlab.evaluation import evaluation
from vitlab.instruments.predictions import Scores, device_of, labelled, predict, score, together

CARD = Card(
    title="Expected calibration error and reliability diagram",
    paper="HDVW Fig. F.1a",
    cost="one forward",
    needs=("labels",),
    higher_is_better=False,
)


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram: of each bin the number of images, and their mean accuracy and confidence, NaN where empty.

    All are (M,).
    """

    count: np.ndarray
    accuracy: np.ndarray
    confidence: np.ndarray

    @property
    def expected_error(self) -> float:
        """ECE."""
        return float(np.nansum(self.count * np.abs(self.accuracy - self.confidence)) / self.count.sum())

    @property
    def signed_error(self) -> float:
        """Signed ECE: mean confidence minus accuracy."""
        return float(np.nansum(self.count * (self.confidence - self.accuracy)) / self.count.sum())


def reliability(confidence: np.ndarray, correct: np.ndarray, bins: int = 10) -> Reliability:
    """The reliability diagram of n predictions.

    Both the accuracy and the confidence of a bin are taken over the same images, those in ((m−1)/M, m/M]. HDVW's
    released code takes confidence over [(m−1)/M, m/M) instead, so that predictions of confidence 1 count in the one
    and not in the other; that is not offered here.

    Args:
        confidence: (n,), in [0, 1].
        correct: (n,), 0 or 1.
        bins: M.

    >>> found = reliability(np.array([0.9, 1.0, 0.6, 0.6]), np.array([1, 1, 0, 1]))
    >>> round(found.expected_error, 3), round(found.signed_error, 3)  # ¼ · 0.1 in bin 9, 0 in 10, ½ · 0.1 in 6
    (0.075, 0.025)
    """
    edges = np.linspace(0.0, 1.0, bins + 1)
    which = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)  # rounding may pass 1
    count = np.bincount(which, minlength=bins)
    with np.errstate(invalid="ignore"):
        means = [np.bincount(which, weights=part, minlength=bins) / count for part in (correct, confidence)]
    return Reliability(count, *means)


def measure(model: nn.Module, batches: Iterable[Any], *, bins: int = 10, images: int | None = None) -> Measurement:
    """Calibration of a classifier, with its proper scores.

    Args:
        model: a classifier; it runs in evaluation mode.
        batches: yields (images, targets); targets are class indices, or probabilities whose largest is the label.
        bins: of the reliability diagram.
        images: use the first so many; all by default.

    Returns:
        `ece`, `signed_ece`, `nll` (nats), `brier` (Σ_c (p_c − y_c)², 0 to 2), `accuracy`, `confidence`, all ();
        `accuracy_interval` (Wilson) and `nll_interval` (Student), 95 %, (bound); `bin_count`, `bin_accuracy`,
        `bin_confidence` (bin), NaN where a bin is empty; `edges` (edge).
    """
    if bins < 1:
        raise VitlabError(f"calibration got bins={bins}; expected at least 1")
    device = device_of(model)
    with evaluation(model):
        pairs = labelled(batches, device, "calibration", images)
        found = together([score(predict(model, x, "calibration"), targets) for x, targets in pairs])
    values = _values(found, bins)
    single = {"edges": ("edge",), "accuracy_interval": ("bound",), "nll_interval": ("bound",)}
    dims = {name: single.get(name, ("bin",) if value.ndim else ()) for name, value in values.items()}
    about = provenance(device=str(device), images=len(found), data=getattr(batches, "fingerprint", ""))
    axes = {"bound": ("low", "high")}
    settings = {"bins": bins, "images": images}
    return Measurement("calibration", type(model).__name__, values, dims, axes, settings, about)


def _values(found: Scores, bins: int) -> dict[str, np.ndarray]:
    diagram = reliability(found.confidence, found.correct, bins)
    return {
        "ece": np.array(diagram.expected_error),
        "signed_ece": np.array(diagram.signed_error),
        "nll": found.nll.mean(),
        "brier": found.brier.mean(),
        "accuracy": found.correct.mean(),
        "confidence": found.confidence.mean(),
        "accuracy_interval": np.array(proportion_interval(int(found.correct.sum()), len(found))[1:]),
        "nll_interval": np.array(mean_interval(found.nll.tolist())[1:]),
        "bin_count": diagram.count,
        "bin_accuracy": diagram.accuracy,
        "bin_confidence": diagram.confidence,
        "edges": np.linspace(0.0, 1.0, bins + 1),
    }
