"""Accuracy on published sets of images in class folders, over all outputs of a model or over some of them.

Shape legend: b batch, K classes, k some of them, n images, f forms of the argmax, S subsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.data.images import ImageFiles
from vitlab.data.robustness_sets import has_class, locate, missing_classes, open_classes, spread
from vitlab.preprocessing.resolution import Given
from vitlab.stress_tests.shared.file_evaluation import (
    Predict,
    classifier_setup,
    classify_set,
    file_provenance,
    is_correct,
    mean_over_sets,
)
from vitlab.stress_tests.shared.pixel_evaluation import result


@dataclass(frozen=True)
class ClassFolderTest:
    """The definition of a stress test on a published set with one folder per class.

    Args:
        name: the name of the stress test.
        folders: names that the folder of the set may have below the root.
        subsets: the folder of each subset, relative to the folder of the set. `{name: ""}` if there is only one.
        labels: returns the ImageNet-1K label of each class folder.
        official_images: the number of images in each complete subset.
        forms: by value name, the classes among which the argmax is taken.
        tree: the official layout, for errors.
        paper: the publication of the set.
    """

    name: str
    folders: tuple[str, ...]
    subsets: Mapping[str, str]
    labels: Callable[[], Mapping[str, int]]
    official_images: int
    forms: Mapping[str, Literal["classes of the set", "all classes"]]
    tree: str
    paper: str

    def open(self, root: str | Path) -> dict[str, ImageFiles]:
        """Returns the subsets found below `root`, at least one, with ImageNet-1K labels."""
        labels = self.labels()

        def present(folder: Path, subset: str) -> bool:
            path = folder / self.subsets[subset]
            return path.is_dir() and has_class(path, labels)

        folder = locate(root, self.folders, lambda path: any(present(path, name) for name in self.subsets), self.tree)
        paths = {name: folder / path for name, path in self.subsets.items() if present(folder, name)}
        return {name: open_classes(path, labels, self.tree) for name, path in paths.items()}

    def classes_by_form(self) -> dict[str, list[int] | None]:
        """By value name, the outputs among which the argmax is taken; None for all 1000."""
        every = [*self.labels().values()]
        return {name: None if classes == "all classes" else every for name, classes in self.forms.items()}


def argmax_among(logits: Tensor, among: Sequence[int]) -> Tensor:
    """Returns the class with the largest output among some classes, as an index into all K classes.

    A set with 200 of ImageNet's classes asks which of the 200 an image shows (Hendrycks et al. 2021). This is easier
    than choosing among all 1000.

    Args:
        logits: (b, K).
        among: k distinct indices.

    Returns:
        (b,) indices, each one of `among`.

    >>> argmax_among(torch.tensor([[9.0, 1.0, 5.0]]), [1, 2])
    tensor([2])
    """
    indices = torch.as_tensor(among, device=logits.device)
    return indices[logits[:, indices].argmax(1)]


def measure_class_folders(
    test: ClassFolderTest,
    model: nn.Module,
    root: str | Path,
    images: int | None,
    batch_size: int,
    processes: int,
    preprocessing: Given,
) -> Measurement:
    """Measure the accuracy of a model on each subset; each subset is one step of the step cache.

    Args:
        test: the definition of the stress test.
        model: a classifier of ImageNet-1K.
        root: the folder that contains the set, or the set itself.
        images: number of images per subset, evenly spaced; None uses all.
        batch_size, processes, preprocessing: see `classifier_setup`.

    Returns:
        Each form and its `…_error`. With several subsets the values have the axis `set`, NaN for missing subsets.
    """
    subsets = test.open(root)
    setup = classifier_setup(model, test.name, preprocessing, batch_size, processes)
    forms, names = test.classes_by_form(), tuple(test.subsets)
    used = {name: spread(files, images) for name, files in subsets.items()}
    correct, broken = {}, []
    for name, part in used.items():
        predictions, unreadable = classify_set(setup, part, name, len(used), _predict([*forms.values()]))
        correct[name] = is_correct(predictions, part.labels)
        broken += unreadable
    counts = {name: int((~np.isnan(correct[name][0])).sum()) if name in correct else 0 for name in names}
    if max(counts.values()) < 2:
        raise VitlabError(f"{test.name} computes standard errors and needs at least two readable images")
    extra = {"official_images": test.official_images, "images_by_set": counts, "argmax": _describe(forms)}
    incomplete = any(count != test.official_images for count in counts.values())
    data = " ".join([test.name, *(part.fingerprint for part in used.values())])
    missing = _missing(subsets, names, test.labels())
    about = file_provenance(setup, data, sum(counts.values()), broken, missing, incomplete, **extra)
    axes = {"set": names} if len(names) > 1 else {}
    errors = {form: f"{form}_error" for form in forms}
    values, settings = _values(correct, names, forms), setup.settings(images=images)
    return result(test.name, setup.model, values, axes, settings, about, errors, {})


def _missing(
    subsets: Mapping[str, ImageFiles], names: Sequence[str], labels: Mapping[str, int]
) -> dict[str, Sequence[str]]:
    """Subsets that are missing, and classes that are missing in a subset that is present."""
    lacking = {name for images in subsets.values() for name in missing_classes(images, labels)}
    absent = [name for name in names if name not in subsets]
    return {"sets": absent, "classes": [name for name in labels if name in lacking]}


def _values(correct: Mapping[str, np.ndarray], names: Sequence[str], forms: Iterable[str]) -> dict[str, np.ndarray]:
    """Each form and its error, (S,), or () for a single subset."""
    values: dict[str, np.ndarray] = {}
    for row, form in enumerate(forms):
        missing = float("nan"), float("nan")
        pairs = np.array([mean_over_sets(correct[name][row, None]) if name in correct else missing for name in names])
        values[form], values[f"{form}_error"] = pairs.T if len(names) > 1 else map(np.asarray, pairs[0])
    return values


def _describe(forms: Mapping[str, Sequence[int] | None]) -> dict[str, str]:
    return {form: "1000-way" if among is None else f"{len(among)}-way" for form, among in forms.items()}


def _predict(forms: Sequence[Sequence[int] | None]) -> Predict:
    """Returns a function from logits to predictions (f, b), one row for each form of the argmax."""

    def predict(logits: Tensor) -> Tensor:
        return torch.stack([logits.argmax(1) if among is None else argmax_among(logits, among) for among in forms])

    return predict
