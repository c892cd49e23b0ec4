"""Fit to the training set against error on the test set: overfitting or underfitting (HDVW Figs. 5, 7a).

    NLL_train = mean over training images of −Σ_c y_c log p_c,   error = fraction of misclassified test images

A model that overfits has a low NLL_train and a high error; HDVW finds that ViTs have both high.

Shape legend: n images.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import nn

from vitlab.core.bounds import ImageCount
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.core.statistics import mean_interval, proportion_interval
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.predictions import Scores, concatenate, device_batches, device_of, predict, score

CARD = Card(
    title="NLL on the training set against error on the test set",
    paper="HDVW Figs. 5, 7a, C.1, C.2, C.3a, C.7a",
    cost="one forward over the training set, one over the test set",
    inputs="training and test images",
    passes="one",
    higher_is_better=False,
)


def summarise(scores: Scores, name: str, confidence: float = 0.95) -> dict[str, np.ndarray]:
    """NLL and error of n images with confidence intervals; keys start with the name of the set.

    The NLL has a Student interval, infinite for a single image; the error has a Wilson interval.

    >>> scores = Scores(*np.array([[0.5, 1.5], [1.0, 0.0], [0.6, 0.6], [0.3, 0.9]]))
    >>> summary = summarise(scores, "test")
    >>> float(summary["test_nll"]), float(summary["test_error"]), summary["test_error_interval"].round(3).tolist()
    (1.0, 0.5, [0.095, 0.905])
    """
    wrong = round(float((1 - scores.correct).sum()))
    nll, *nll_bounds = mean_interval(scores.nll.tolist(), confidence)
    error, *error_bounds = proportion_interval(wrong, len(scores), confidence)
    return {
        f"{name}_nll": np.array(nll),
        f"{name}_nll_interval": np.array(nll_bounds),
        f"{name}_error": np.array(error),
        f"{name}_error_interval": np.array(error_bounds),
        f"{name}_images": np.array(len(scores)),
    }


def measure(
    model: nn.Module, batches: Iterable[Any], *, test: Iterable[Any] | None = None, images: ImageCount | None = None
) -> Measurement:
    """NLL on the training set against error on the test set, both in evaluation mode.

    HDVW does not state whether its NLL_train uses augmented images. Its values suggest so: 2.31 for a ResNet-18 with
    22.0 % error is much larger than possible for clean training images. Use batches augmented as in training, mixed
    targets included, to compare with HDVW, and clean batches to measure overfitting.

    Args:
        model: a classifier; its state is restored afterwards.
        batches: the training set; yields (images, targets); targets are class indices, probabilities (B, C), or
            (labels, partners, share) of Mixup and CutMix.
        test: the test set, in the same format.
        images: number of training images to use. Default: all.

    Returns:
        `train_nll`, `train_error`, `test_nll`, `test_error` (), errors as fractions; each with a 95 % `…_interval`
        (bound), Student for NLL and Wilson for errors; `train_images`, `test_images` ().
    """
    if test is None:
        raise VitlabError("train_fit needs a test set; give test= with the batches of the test set")
    device = device_of(model)
    sets = {"train": (batches, images), "test": (test, None)}
    values: dict[str, np.ndarray] = {}
    with eval_mode(model):
        for name, (items, count) in sets.items():
            instrument = f"train_fit ({name} set)"
            pairs = device_batches(items, device, instrument, count)
            scores = [score(predict(model, x, instrument), targets) for x, targets in pairs]
            values |= summarise(concatenate(scores), name)
    dims = {name: ("bound",)[: value.ndim] for name, value in values.items()}
    about = provenance(
        device=str(device),
        images=int(values["train_images"] + values["test_images"]),
        data=getattr(batches, "fingerprint", ""),
        test_data=getattr(test, "fingerprint", ""),
    )
    axes = {"bound": ("low", "high")}
    return Measurement("train_fit", type(model).__name__, values, dims, axes, {"images": images}, about)
