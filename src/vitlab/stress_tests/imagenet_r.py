"""Accuracy on ImageNet-R, renditions such as paintings, cartoons, toys and tattoos.

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
from vitlab.stress_tests.shared.imagenet_sets import IMAGENET_R

CARD = Card(
    title="Accuracy on ImageNet-R, renditions of objects",
    paper="Hendrycks et al., ICCV 2021; TAPADL Table 2",
    cost="30,000 forwards",
    inputs="files",
    passes="one",
    higher_is_better=True,
)

TREE = IMAGENET_R.tree
FOLDERS = IMAGENET_R.folders  # below the root


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
        root: the folder `imagenet-r`, or the folder that contains it.
        images: number of images, evenly spaced; default all.
        batch_size, processes, preprocessing: see `imagenet_a`.

    Returns:
        `accuracy_200`, with the argmax over the 200 classes of the set, and `accuracy_1000`, with the argmax over all
        classes, each with its standard error `…_error` (). Provenance lists broken files and missing classes;
        `partial` is True unless all 30,000 images were classified.
    """
    return measure_class_folders(IMAGENET_R, model, root, images, batch_size, processes, preprocessing)
