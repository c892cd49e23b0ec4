"""Accuracy on ImageNet's validation images by the reassessed labels (ReaL).

Shape legend: n images.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from timm.data.real_labels import RealLabelsImagenet
from torch import nn

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
from vitlab.stress_tests.shared.file_evaluation import about, classifier_setup, classify_set, mean_over_sets, right
from vitlab.stress_tests.shared.pixel_evaluation import result

CARD = Card(
    title="Accuracy by the reassessed labels of ImageNet",
    paper="Beyer et al., 2020, Are we done with ImageNet?; CB Table 5",
    cost="50,000 forwards",
    inputs="files",
    passes="one",
    higher_is_better=True,
)

TREE = """\
  ROOT/val/n01440764/ILSVRC2012_val_00000293.JPEG     50,000 images, in folders of classes or without
  ROOT/real.json                                      optional: the labels; else those that timm brings
or the same without val/"""

_OFFICIAL = 50_000


def is_among(answers: np.ndarray, sets: Sequence[Sequence[int]]) -> np.ndarray:
    """Right where the answer is one of an image's labels; NaN where it has none, which leaves the image out.

    Beyer et al., section 4: an image may show several classes, and any of them is right; 3,163 images have no label.

    Args:
        answers: (n,) class indices, NaN where there is no answer.
        sets: n lists of labels.

    Returns:
        (n,) 1, 0 or NaN.

    >>> is_among(np.array([3.0, 3.0, 3.0, np.nan]), [[7, 3], [8], [], [3]]).tolist()
    [1.0, 0.0, nan, nan]
    """
    pairs = zip(answers.tolist(), sets, strict=True)
    return np.array([float(one in labels) if labels and one == one else float("nan") for one, labels in pairs])


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    images: int | None = None,
    batch_size: int = 64,
    processes: int = -1,
    preprocessing: Mapping[str, Any] | None = None,
) -> Measurement:
    """Accuracy by ReaL and by the original labels, the argmax taken over all 1000 classes.

    Args:
        model: a classifier of ImageNet-1K; it is left as it was found.
        root: holds `val`, or is it: ImageNet's validation images, in folders of classes or flat. Their names say which
            they are. A `real.json` beside them is taken for the labels, else timm's copy of it.
        images: so many, at even distances; all by default.
        batch_size, processes, preprocessing: as in `imagenet_a`.

    Returns:
        `accuracy`, over the images that have a reassessed label, and `original_accuracy`, over all by ImageNet's own
        label, NaN where no folder says it, each with its `…_error` (). Provenance has `images_with_labels`, names
        broken files and missing classes, and says `partial: True` unless all 50,000 images counted.
    """
    folder = locate(root, ("val", "imagenet/val", "imagenet"), _holds, TREE)
    whole, original = open_validation(folder, TREE)
    origin, labels = _labels((folder, folder.parent))
    part = spread(whole, images)
    who = classifier_setup(model, "imagenet_real", preprocessing, batch_size, processes)
    (answers,), broken = classify_set(who, part, "validation images", 1)
    marks = {"accuracy": is_among(answers, [labels[number - 1] for number in numbers(part, TREE)])}
    marks["original_accuracy"] = right(answers, part.labels) if original else np.full(len(part), np.nan)
    with_labels, count = int((~np.isnan(marks["accuracy"])).sum()), len(part) - len(broken)
    if with_labels < 2:
        raise VitlabError(f"imagenet_real needs at least two images that have a label by ReaL; {with_labels} given")
    values = {}
    for name, each in marks.items():
        values[name], values[f"{name}_error"] = map(np.asarray, mean_over_sets(each[None]))
    missing = {"classes": missing_classes(whole, labels_1000()) if original else []}
    extra = {"labels": origin, "images_with_labels": with_labels, "argmax": dict.fromkeys(marks, "1000-way")}
    proof = about(who, f"imagenet_real {part.fingerprint}", count, broken, missing, count != _OFFICIAL, **extra)
    errors = {name: f"{name}_error" for name in marks}
    return result("imagenet_real", who.model, values, {}, who.settings(images=images), proof, errors, {})


def _holds(place: Path) -> bool:
    return has_class(place, labels_1000()) or any(place.glob("ILSVRC2012_val_*"))


def _labels(places: Sequence[Path]) -> tuple[str, list[list[int]]]:
    """Where the labels are from, and the labels of each of the 50,000 images."""
    file = next((place / "real.json" for place in places if (place / "real.json").is_file()), None)
    if file is None:
        return "timm's real.json", [*RealLabelsImagenet(range(_OFFICIAL)).real_labels.values()]
    try:
        labels = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VitlabError(f"{file} cannot be read ({error})") from error
    whole = isinstance(labels, list) and len(labels) == _OFFICIAL
    if not whole or not all(isinstance(one, list) and all(label in range(1000) for label in one) for one in labels):
        raise VitlabError(f"{file} is no real.json; expected 50,000 lists of labels, 0 to 999")
    return str(file), labels
