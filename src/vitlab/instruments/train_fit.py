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
from vitlab.core.pooling import derive
from vitlab.core.provenance import provenance
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.predictions import concatenate, device_batches, device_of, predict, score

CARD = Card(
    title="NLL on the training set against error on the test set",
    paper="HDVW Figs. 5, 7a, C.1, C.2, C.3a, C.7a",
    cost="one forward over the training set, one over the test set",
    inputs="training and test images",
    passes="one",
    higher_is_better=False,
)


def rules(name: str) -> dict[str, tuple[str, ...]]:
    """Pooling rules: how the values of a set, `train` or `test`, are computed from per-image numbers."""
    nll, wrong = f"{name}_nll_by_image", f"{name}_wrong_by_image"
    return {
        **dict.fromkeys((nll, wrong), ("concatenate", f"{name}_image")),
        f"{name}_nll": ("mean_of", "each", nll),
        f"{name}_nll_interval": ("student_interval", nll),
        f"{name}_error": ("mean_of", "each", wrong),
        f"{name}_error_interval": ("wilson_interval", wrong),
        f"{name}_images": ("sum",),
    }


_POOLING = {**rules("train"), **rules("test")}


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
        (bound), Student for NLL and Wilson for errors; `train_images`, `test_images` (); `train_nll_by_image`,
        `train_wrong_by_image` (train_image), `test_nll_by_image`, `test_wrong_by_image` (test_image), from which the
        others are computed.
    """
    if test is None:
        raise VitlabError("train_fit needs a test set; give test= with the batches of the test set")
    device = device_of(model)
    sets = {"train": (batches, images), "test": (test, None)}
    stored: dict[str, np.ndarray] = {}
    with eval_mode(model):
        for name, (items, count) in sets.items():
            instrument = f"train_fit ({name} set)"
            pairs = device_batches(items, device, instrument, count)
            scores = concatenate([score(predict(model, x, instrument), targets) for x, targets in pairs])
            stored |= {f"{name}_nll_by_image": scores.nll, f"{name}_wrong_by_image": scores.correct < 0.5}
            stored[f"{name}_images"] = np.array(len(scores))
    values = derive(stored, _POOLING)
    dims = {name: ("bound",)[: value.ndim] for name, value in values.items()}
    dims |= {name: rule[1:] for name, rule in _POOLING.items() if rule[0] == "concatenate"}
    about = provenance(
        device=str(device),
        images=int(values["train_images"] + values["test_images"]),
        data=getattr(batches, "fingerprint", ""),
        test_data=getattr(test, "fingerprint", ""),
    )
    axes, subject = {"bound": ("low", "high")}, type(model).__name__
    return Measurement("train_fit", subject, values, dims, axes, {"images": images}, about, pooling=_POOLING)
