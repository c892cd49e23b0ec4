"""Accuracy on ImageNet-A, natural images that a ResNet-50 misclassifies.

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
from vitlab.stress_tests.shared.imagenet_sets import IMAGENET_A

CARD = Card(
    title="Accuracy on ImageNet-A, natural adversarial images",
    paper="Hendrycks et al., CVPR 2021; CB Table 8, TAPADL Table 2",
    cost="7,500 forwards",
    inputs="files",
    passes="one",
    higher_is_better=True,
)

TREE = IMAGENET_A.tree
FOLDERS = IMAGENET_A.folders  # below the root


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    images: ImageCount | None = None,
    batch_size: BatchSize = 64,
    processes: Processes = -1,
    preprocessing: Given = None,
) -> Measurement:
    """Measure the accuracy among the 200 classes of the set, as its authors do, and among all 1000 classes.

    Args:
        model: a classifier of ImageNet-1K; its state is restored on exit.
        root: the folder `imagenet-a`, or the folder that contains it.
        images: number of images, evenly spaced; default all.
        batch_size: images per forward pass.
        processes: worker processes that decode images. 0 decodes in the main process; -1 uses one per CPU core, at
            most 8.
        preprocessing: fields of `Preprocessing` that override the model's own: `size`, `mean`, `std`, `crop`,
            `interpolation`, `crop_mode`.

    Returns:
        `accuracy_200`, with the argmax over the 200 classes of the set, and `accuracy_1000`, with the argmax over all
        classes, each with its standard error `…_error` (). Provenance lists broken files and missing classes;
        `partial` is True unless all 7,500 images were classified.
    """
    return measure_class_folders(IMAGENET_A, model, root, images, batch_size, processes, preprocessing)
