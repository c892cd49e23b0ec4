"""Accuracy on sets of images in folders of classes, over all outputs of a model or over some of them.

Shape legend: b batch, K classes, k some of them, n images, f forms of the argmax, S sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.data.images import ImageFiles
from vitlab.data.robustness_sets import missing_classes, spread
from vitlab.stress_tests.shared.file_evaluation import (
    Answer,
    ClassifierSetup,
    about,
    classify_set,
    mean_over_sets,
    right,
)
from vitlab.stress_tests.shared.pixel_evaluation import result


def argmax_among(logits: Tensor, among: Sequence[int]) -> Tensor:
    """The largest output among some classes, as an index of all K: outputs of the other classes do not count.

    A set of 200 of ImageNet's classes asks a model which of the 200 it sees (Hendrycks et al. 2021), an easier question
    than which of the 1000.

    Args:
        logits: (b, K).
        among: k distinct indices.

    Returns:
        (b,) indices, each one of `among`.

    >>> argmax_among(torch.tensor([[9.0, 1.0, 5.0]]), [1, 2])
    tensor([2])
    """
    kept = torch.as_tensor(among, device=logits.device)
    return kept[logits[:, kept].argmax(1)]


def measure_folders(
    kind: str,
    who: ClassifierSetup,
    sets: Mapping[str, ImageFiles],
    labels: Mapping[str, int],
    official: int,
    forms: Mapping[str, Sequence[int] | None],
    images: int | None = None,
    names: Sequence[str] = (),
) -> Measurement:
    """Accuracy of a model on each of some sets, each a step of the step cache.

    Args:
        kind: the stress test.
        who: the classifier.
        sets: images by the name of their set, labelled as ImageNet-1K.
        labels: of all classes that a set should have.
        official: how many images a set should have.
        forms: by name of the value, the outputs among which the argmax is taken; None for all 1000.
        images: take so many of each set, at even distances; all with None.
        names: of all sets that the test has, where there are several.

    Returns:
        Each form and its `…_error`; where the test has several sets, by `set`, NaN for those that are not there.
    """
    chosen = {name: spread(whole, images) for name, whole in sets.items()}
    marks, broken = {}, []
    for name, part in chosen.items():
        answers, lost = classify_set(who, part, name, len(chosen), _answer([*forms.values()]))
        marks[name] = right(answers, part.labels)
        broken += lost
    names = names or tuple(sets)
    counts = {name: int((~np.isnan(marks[name][0])).sum()) if name in marks else 0 for name in names}
    if max(counts.values()) < 2:
        raise VitlabError(f"{kind} gives standard errors and needs at least two images that can be read")
    extra = {"official_images": official, "images_by_set": counts, "argmax": _said(forms)}
    few = any(count != official for count in counts.values())
    data = " ".join([kind, *(part.fingerprint for part in chosen.values())])
    proof = about(who, data, sum(counts.values()), broken, _missing(sets, names, labels), few, **extra)
    axes = {"set": names} if len(names) > 1 else {}
    errors = {form: f"{form}_error" for form in forms}
    return result(kind, who.model, _values(marks, names, forms), axes, who.settings(images=images), proof, errors, {})


def _missing(
    sets: Mapping[str, ImageFiles], names: Sequence[str], labels: Mapping[str, int]
) -> dict[str, Sequence[str]]:
    """Sets that are not there, and classes that a set which is there lacks."""
    lacking = {name for images in sets.values() for name in missing_classes(images, labels)}
    absent = [name for name in names if name not in sets]
    return {"sets": absent, "classes": [name for name in labels if name in lacking]}


def _values(marks: Mapping[str, np.ndarray], names: Sequence[str], forms: Iterable[str]) -> dict[str, np.ndarray]:
    """Each form and its error, (S,), or () of the only set."""
    values: dict[str, np.ndarray] = {}
    for row, form in enumerate(forms):
        nothing = float("nan"), float("nan")
        pairs = np.array([mean_over_sets(marks[name][row, None]) if name in marks else nothing for name in names])
        values[form], values[f"{form}_error"] = pairs.T if len(names) > 1 else map(np.asarray, pairs[0])
    return values


def _said(forms: Mapping[str, Sequence[int] | None]) -> dict[str, str]:
    return {form: "1000-way" if among is None else f"{len(among)}-way" for form, among in forms.items()}


def _answer(forms: Sequence[Sequence[int] | None]) -> Answer:
    """Answers (f, b), by each form of the argmax."""

    def answer(logits: Tensor) -> Tensor:
        return torch.stack([logits.argmax(1) if among is None else argmax_among(logits, among) for among in forms])

    return answer
