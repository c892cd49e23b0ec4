"""Accuracy on ImageNet-Sketch, black-and-white drawings of ImageNet's 1000 classes.

Shape legend: see `class_folders`.
"""

from __future__ import annotations

from pathlib import Path

from torch import nn

from vitlab.core.bounds import ImageCount
from vitlab.core.measurement import Card, Measurement
from vitlab.preprocessing.resolution import Given
from vitlab.stress_tests.shared.class_folders import measure_class_folders
from vitlab.stress_tests.shared.file_evaluation import BatchSize, Processes
from vitlab.stress_tests.shared.imagenet_sets import IMAGENET_SKETCH

CARD = Card(
    title="Accuracy on ImageNet-Sketch, drawings",
    paper="Wang et al., NeurIPS 2019",
    cost="50,889 forwards",
    inputs="files",
    passes="one",
    higher_is_better=True,
)

TREE = IMAGENET_SKETCH.tree
FOLDERS = IMAGENET_SKETCH.folders  # below the root


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    images: ImageCount | None = None,
    batch_size: BatchSize = 64,
    processes: Processes = -1,
    preprocessing: Given = None,
) -> Measurement:
    """Measure the accuracy on drawings, with the argmax over all 1000 classes.

    Args:
        model: a classifier of ImageNet-1K; its state is restored on exit.
        root: the folder `sketch`, or the folder that contains it.
        images: number of images, evenly spaced; default all.
        batch_size, processes, preprocessing: see `imagenet_a`.

    Returns:
        `accuracy` and `accuracy_error` (). Provenance lists broken files and missing classes; `partial` is True unless
        all 50,889 images were classified.
    """
    return measure_class_folders(IMAGENET_SKETCH, model, root, images, batch_size, processes, preprocessing)
