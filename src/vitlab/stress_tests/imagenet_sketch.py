"""Accuracy on ImageNet-Sketch, drawings of ImageNet's 1000 classes in black and white.

Shape legend: see `class_folders`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from vitlab.core.measurement import Card, Measurement
from vitlab.data.robustness_sets import has_class, labels_1000, locate, open_classes
from vitlab.stress_tests.shared.class_folders import measure_folders
from vitlab.stress_tests.shared.file_evaluation import classifier_setup

CARD = Card(
    title="Accuracy on ImageNet-Sketch, drawings",
    paper="Wang et al., NeurIPS 2019",
    cost="50,889 forwards",
    inputs="files",
    passes="one",
    higher_is_better=True,
)

TREE = """\
  ROOT/sketch/n01440764/sketch_0.JPEG     1,000 folders, 50,889 images (ImageNet-Sketch.zip)
or the same without sketch/"""

_OFFICIAL = 50_889


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    images: int | None = None,
    batch_size: int = 64,
    processes: int = -1,
    preprocessing: Mapping[str, Any] | None = None,
) -> Measurement:
    """Accuracy on drawings, the argmax taken over all 1000 classes.

    Args:
        model: a classifier of ImageNet-1K; it is left as it was found.
        root: holds `sketch`, or is it.
        images: so many, at even distances; all by default.
        batch_size, processes, preprocessing: as in `imagenet_a`.

    Returns:
        `accuracy` and `accuracy_error` (). Provenance names broken files and missing classes, and says `partial: True`
        unless all 50,889 images counted.
    """
    labels = labels_1000()
    names = ("sketch", "ImageNet-Sketch/sketch", "imagenet-sketch", "ImageNet-Sketch")
    folder = locate(root, names, lambda place: has_class(place, labels), TREE)
    found = open_classes(folder, labels, TREE)
    who = classifier_setup(model, "imagenet_sketch", preprocessing, batch_size, processes)
    return measure_folders("imagenet_sketch", who, {"sketch": found}, labels, _OFFICIAL, {"accuracy": None}, images)
