"""Accuracy on ImageNet-R, renditions: paintings, cartoons, toys, tattoos and the like.

Shape legend: see `class_folders`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from vitlab.core.measurement import Card, Measurement
from vitlab.data.robustness_sets import has_class, labels_200, locate, open_classes
from vitlab.stress_tests.shared.class_folders import measure_folders
from vitlab.stress_tests.shared.file_evaluation import classifier_setup

CARD = Card(
    title="Accuracy on ImageNet-R, renditions of objects",
    paper="Hendrycks et al., ICCV 2021; TAPADL Table 2",
    cost="30,000 forwards",
    inputs="files",
    passes="one",
    higher_is_better=True,
)

TREE = """\
  ROOT/imagenet-r/n01443537/<any name>.jpg     200 folders, 30,000 images (imagenet-r.tar)
or the same without imagenet-r/"""

_OFFICIAL = 30_000


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    images: int | None = None,
    batch_size: int = 64,
    processes: int = -1,
    preprocessing: Mapping[str, Any] | None = None,
) -> Measurement:
    """Accuracy among the 200 classes of the set, as its authors count it, and among all 1000.

    Args:
        model: a classifier of ImageNet-1K; it is left as it was found.
        root: holds `imagenet-r`, or is it.
        images: so many, at even distances; all by default.
        batch_size, processes, preprocessing: as in `imagenet_a`.

    Returns:
        `accuracy_200`, the argmax taken among the 200 classes of the set, and `accuracy_1000`, among all, each with
        its standard error `…_error` (). Provenance names broken files and missing classes, and says `partial: True`
        unless all 30,000 images counted.
    """
    labels = labels_200("r")
    folder = locate(root, ("imagenet-r", "ImageNet-R"), lambda place: has_class(place, labels), TREE)
    found = open_classes(folder, labels, TREE)
    who = classifier_setup(model, "imagenet_r", preprocessing, batch_size, processes)
    forms = {"accuracy_200": [*labels.values()], "accuracy_1000": None}
    return measure_folders("imagenet_r", who, {"imagenet-r": found}, labels, _OFFICIAL, forms, images)
