"""Accuracy on the three sets of ImageNet-V2, collected anew as ImageNet's validation images once were.

Shape legend: see `class_folders`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from vitlab.core.measurement import Card, Measurement
from vitlab.data.robustness_sets import has_class, labels_by_number, locate, open_classes
from vitlab.stress_tests.shared.class_folders import measure_folders
from vitlab.stress_tests.shared.file_evaluation import classifier_setup

CARD = Card(
    title="Accuracy on the three sets of ImageNet-V2",
    paper="Recht et al., ICML 2019; CB Table 5, which does not say which of the three",
    cost="30,000 forwards",
    inputs="files",
    passes="one",
    higher_is_better=True,
)

#: The sets, and the folders that their archives unpack to.
SETS = {
    "matched-frequency": "imagenetv2-matched-frequency-format-val",
    "threshold-0.7": "imagenetv2-threshold0.7-format-val",
    "top-images": "imagenetv2-top-images-format-val",
}

TREE = """\
  ROOT/imagenetv2-matched-frequency-format-val/0/<any name>.jpeg     1,000 folders, 0 to 999, 10,000 images
  ROOT/imagenetv2-threshold0.7-format-val/0/<any name>.jpeg
  ROOT/imagenetv2-top-images-format-val/0/<any name>.jpeg"""

_OFFICIAL = 10_000


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    images: int | None = None,
    batch_size: int = 64,
    processes: int = -1,
    preprocessing: Mapping[str, Any] | None = None,
) -> Measurement:
    """Accuracy on each of the three sets, the argmax taken over all 1000 classes; a run resumes at the next set.

    Args:
        model: a classifier of ImageNet-1K; it is left as it was found.
        root: holds the folders of the sets, any of the three; their folders `0` to `999` are labels.
        images: so many of each, at even distances; all by default.
        batch_size, processes, preprocessing: as in `imagenet_a`.

    Returns:
        `accuracy` and `accuracy_error` (set), NaN for a set that is not there. Provenance names broken files, missing
        classes and missing sets, and says `partial: True` unless all 3 × 10,000 images counted.
    """
    labels = labels_by_number()

    def there(place: Path, name: str) -> bool:
        return (place / SETS[name]).is_dir() and has_class(place / SETS[name], labels)

    names = ("imagenet-v2", "ImageNetV2", "imagenetv2")
    folder = locate(root, names, lambda place: any(there(place, name) for name in SETS), TREE)
    found = {name: open_classes(folder / SETS[name], labels, TREE) for name in SETS if there(folder, name)}
    who = classifier_setup(model, "imagenet_v2", preprocessing, batch_size, processes)
    return measure_folders("imagenet_v2", who, found, labels, _OFFICIAL, {"accuracy": None}, images, tuple(SETS))
