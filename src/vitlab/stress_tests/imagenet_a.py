"""Accuracy on ImageNet-A, natural images that a ResNet-50 gets wrong.

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
    title="Accuracy on ImageNet-A, natural adversarial images",
    paper="Hendrycks et al., CVPR 2021; CB Table 8, TAPADL Table 2",
    cost="7,500 forwards",
    inputs="files",
    passes="one",
    higher_is_better=True,
)

TREE = """\
  ROOT/imagenet-a/n01498041/<any name>.jpg     200 folders, 7,500 images (imagenet-a.tar)
or the same without imagenet-a/"""

_OFFICIAL = 7_500


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
        root: holds `imagenet-a`, or is it.
        images: so many, at even distances; all by default.
        batch_size: of the forwards.
        processes: workers that decode images; 0 decodes here, -1 takes as many as there are cores, up to 8.
        preprocessing: fields of `Preprocessing` that replace the model's own: `size`, `mean`, `std`, `crop`,
            `interpolation`, `crop_mode`.

    Returns:
        `accuracy_200`, the argmax taken among the 200 classes of the set, and `accuracy_1000`, among all, each with
        its standard error `…_error` (). Provenance names broken files and missing classes, and says `partial: True`
        unless all 7,500 images counted.
    """
    labels = labels_200("a")
    folder = locate(root, ("imagenet-a", "ImageNet-A"), lambda place: has_class(place, labels), TREE)
    found = open_classes(folder, labels, TREE)
    who = classifier_setup(model, "imagenet_a", preprocessing, batch_size, processes)
    forms = {"accuracy_200": [*labels.values()], "accuracy_1000": None}
    return measure_folders("imagenet_a", who, {"imagenet-a": found}, labels, _OFFICIAL, forms, images)
