"""Fit to the training set against error on the test set: does a model overfit, or fit badly? (HDVW Figs. 5, 7a)

    NLL_train = mean over training images of −Σ_c y_c log p_c,   error = share of test images that are misclassified

A model that overfits has a low NLL_train and a high error; HDVW finds that ViTs have both high.

Shape legend: n images.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import nn

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.core.statistics import mean_interval, proportion_interval
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.predictions import Scores, device_of, labelled, predict, score, together

CARD = Card(
    title="NLL on the training set against error on the test set",
    paper="HDVW Figs. 5, 7a, C.1, C.2, C.3a, C.7a",
    cost="one forward over the training set, one over the test set",
    inputs="training and test images",
    passes="one",
    higher_is_better=False,
)


def summarise(scores: Scores, name: str, confidence: float = 0.95) -> dict[str, np.ndarray]:
    """NLL and error of n images with their intervals, named after the set.

    The interval of the NLL is Student's, that of the error Wilson's; that of one image's NLL is infinite.

    >>> one = Scores(*np.array([[0.5, 1.5], [1.0, 0.0], [0.6, 0.6], [0.3, 0.9]]))
    >>> found = summarise(one, "test")
    >>> float(found["test_nll"]), float(found["test_error"]), found["test_error_interval"].round(3).tolist()
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
    model: nn.Module, batches: Iterable[Any], *, test: Iterable[Any] | None = None, images: int | None = None
) -> Measurement:
    """NLL on the training set against error on the test set, both in evaluation mode.

    HDVW does not say whether its NLL_train is that of augmented images. Its values say so: 2.31 for a ResNet-18 with
    22.0 % error is far more than clean training images can have. Give the training batches as they were trained on,
    mixed targets included, to compare with it, and clean ones to ask about overfitting.

    Args:
        model: a classifier; it is left as it was found.
        batches: the training set: yields (images, targets); targets are class indices, probabilities (B, C), or
            (labels, partners, share) of Mixup and CutMix.
        test: the test set, likewise.
        images: of the training set use the first so many; all by default.

    Returns:
        `train_nll`, `train_error`, `test_nll`, `test_error` (), errors as shares; each with a 95 % `…_interval`
        (bound), Student's for NLL and Wilson's for errors; `train_images`, `test_images` ().
    """
    if test is None:
        raise VitlabError("train_fit compares the training set with a test set; give test=batches of the test set")
    device = device_of(model)
    sets = {"train": (batches, images), "test": (test, None)}
    values: dict[str, np.ndarray] = {}
    with eval_mode(model):
        for name, (items, count) in sets.items():
            who = f"train_fit ({name} set)"
            pairs = labelled(items, device, who, count)
            values |= summarise(together([score(predict(model, x, who), targets) for x, targets in pairs]), name)
    dims = {name: ("bound",)[: value.ndim] for name, value in values.items()}
    about = provenance(
        device=str(device),
        images=int(values["train_images"] + values["test_images"]),
        data=getattr(batches, "fingerprint", ""),
        test_data=getattr(test, "fingerprint", ""),
    )
    axes = {"bound": ("low", "high")}
    return Measurement("train_fit", type(model).__name__, values, dims, axes, {"images": images}, about)
