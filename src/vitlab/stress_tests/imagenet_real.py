"""Accuracy on ImageNet's validation images with the reassessed labels (ReaL).

Shape legend: n images.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from timm.data.real_labels import RealLabelsImagenet
from torch import nn

from vitlab.core.bounds import ImageCount
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.data.robustness_sets import (
    has_class,
    labels_1000,
    locate,
    missing_classes,
    numbers,
    open_validation,
    spread,
)
from vitlab.preprocessing.resolution import Given
from vitlab.stress_tests.shared.file_evaluation import (
    BatchSize,
    Processes,
    classifier_setup,
    classify_set,
    file_provenance,
    is_correct,
    mean_over_sets,
)
from vitlab.stress_tests.shared.pixel_evaluation import result

CARD = Card(
    title="Accuracy by the reassessed labels of ImageNet",
    paper="Beyer et al., 2020, Are we done with ImageNet?; CB Table 5",
    cost="50,000 forwards",
    inputs="files",
    passes="one",
    higher_is_better=True,
)

FOLDERS = ("val", "imagenet/val", "imagenet", "real.json")  # below the root; the last has labels

TREE = """\
  ROOT/val/n01440764/ILSVRC2012_val_00000293.JPEG     50,000 images, with or without class folders
  ROOT/real.json                                      optional labels; default: the copy in timm
or the same without val/"""

_OFFICIAL = 50_000


def is_among(predictions: np.ndarray, sets: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns 1 where the prediction is one of the labels of the image, 0 where it is not, NaN without labels.

    Beyer et al., section 4: an image may show several classes, and any of them is correct. 3,163 images have no label
    and are skipped.

    Args:
        predictions: (n,) class indices, NaN for unreadable images.
        sets: n lists of labels.

    Returns:
        (n,) 1, 0 or NaN.

    >>> is_among(np.array([3.0, 3.0, 3.0, np.nan]), [[7, 3], [8], [], [3]]).tolist()
    [1.0, 0.0, nan, nan]
    """
    pairs = zip(predictions.tolist(), sets, strict=True)
    return np.array([float(one in labels) if labels and one == one else float("nan") for one, labels in pairs])


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    images: ImageCount | None = None,
    batch_size: BatchSize = 64,
    processes: Processes = -1,
    preprocessing: Given = None,
) -> Measurement:
    """Measure the accuracy with the ReaL and with the original labels, with the argmax over all 1000 classes.

    Args:
        model: a classifier of ImageNet-1K; its state is restored on exit.
        root: the folder `val`, or the folder that contains it: ImageNet's validation images, with or without class
            folders, under their original file names. The labels are those of `real.json` next to them, else those of
            timm's copy.
        images: number of images, evenly spaced; default all.
        batch_size, processes, preprocessing: see `imagenet_a`.

    Returns:
        `accuracy`, over the images that have a reassessed label, and `original_accuracy`, over all images with
        ImageNet's own label, NaN without class folders, each with its `…_error` (). Provenance has
        `images_with_labels` and lists broken files and missing classes; `partial` is True unless all 50,000 images
        were classified.
    """
    folder = locate(root, FOLDERS[:-1], _has_images, TREE)
    every, original = open_validation(folder, TREE)
    origin, labels = _labels((folder, folder.parent))
    part = spread(every, images)
    setup = classifier_setup(model, "imagenet_real", preprocessing, batch_size, processes)
    (predictions,), broken = classify_set(setup, part, "validation images", 1)
    correct = {"accuracy": is_among(predictions, [labels[number - 1] for number in numbers(part, TREE)])}
    correct["original_accuracy"] = is_correct(predictions, part.labels) if original else np.full(len(part), np.nan)
    with_labels, count = int((~np.isnan(correct["accuracy"])).sum()), len(part) - len(broken)
    if with_labels < 2:
        raise VitlabError(f"imagenet_real needs at least two images with a ReaL label; got {with_labels}")
    values = {}
    for name, each in correct.items():
        values[name], values[f"{name}_error"] = map(np.asarray, mean_over_sets(each[None]))
    missing = {"classes": missing_classes(every, labels_1000()) if original else []}
    extra = {"labels": origin, "images_with_labels": with_labels, "argmax": dict.fromkeys(correct, "1000-way")}
    data, incomplete = f"imagenet_real {part.fingerprint}", count != _OFFICIAL
    about = file_provenance(setup, data, count, broken, missing, incomplete, **extra)
    errors = {name: f"{name}_error" for name in correct}
    return result("imagenet_real", setup.model, values, {}, setup.settings(images=images), about, errors, {})


def _has_images(folder: Path) -> bool:
    return has_class(folder, labels_1000()) or any(folder.glob("ILSVRC2012_val_*"))


def _labels(folders: Sequence[Path]) -> tuple[str, list[list[int]]]:
    """Returns the source of the labels, and the labels of each of the 50,000 images."""
    file = next((folder / "real.json" for folder in folders if (folder / "real.json").is_file()), None)
    if file is None:
        return "timm's real.json", [*RealLabelsImagenet(range(_OFFICIAL)).real_labels.values()]
    try:
        labels = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise VitlabError(f"cannot read {file} ({error})") from error
    complete = isinstance(labels, list) and len(labels) == _OFFICIAL
    if not complete or not all(isinstance(one, list) and all(label in range(1000) for label in one) for one in labels):
        raise VitlabError(f"invalid {file}; expected 50,000 lists of labels from 0 to 999")
    return str(file), labels
