"""Accuracy on the three sets of ImageNet-V2, new images collected by the protocol of ImageNet's validation images.

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
from vitlab.stress_tests.shared.imagenet_sets import IMAGENET_V2

CARD = Card(
    title="Accuracy on the three sets of ImageNet-V2",
    paper="Recht et al., ICML 2019; CB Table 5, which does not say which of the three",
    cost="30,000 forwards",
    inputs="files",
    passes="one",
    higher_is_better=True,
)

#: The sets, and the folders that their archives unpack to.
SETS = IMAGENET_V2.subsets
TREE = IMAGENET_V2.tree
FOLDERS = IMAGENET_V2.folders  # below the root


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    images: ImageCount | None = None,
    batch_size: BatchSize = 64,
    processes: Processes = -1,
    preprocessing: Given = None,
) -> Measurement:
    """Measure the accuracy on each of the three sets, with the argmax over all 1000 classes; resumes at the next set.

    Args:
        model: a classifier of ImageNet-1K; its state is restored on exit.
        root: the folder that contains the folders of one or more sets. Their class folders `0` to `999` are labels.
        images: number of images per set, evenly spaced; default all.
        batch_size, processes, preprocessing: see `imagenet_a`.

    Returns:
        `accuracy` and `accuracy_error` (set), NaN for missing sets. Provenance lists broken files, missing classes and
        missing sets; `partial` is True unless all 3 × 10,000 images were classified.
    """
    return measure_class_folders(IMAGENET_V2, model, root, images, batch_size, processes, preprocessing)
