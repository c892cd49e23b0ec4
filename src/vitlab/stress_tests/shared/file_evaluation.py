"""A classifier before a set of images: each shown as the model wants it, and what it takes each for.

Shape legend: B batch, b those of it that could be read, K classes, h w pixels, n images, m answers, S sets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from vitlab.adapters.wrappers import unwrap
from vitlab.core.errors import VitlabError
from vitlab.core.provenance import provenance
from vitlab.core.step_cache import step
from vitlab.data.images import IGNORED, ImageFiles, ImageSet
from vitlab.eval_mode import eval_mode
from vitlab.preprocessing import Preprocessing, preprocessing_of
from vitlab.preprocessing.description import check_names
from vitlab.preprocessing.resolution import Given
from vitlab.stress_tests.shared.pixel_evaluation import classifier

#: Images that are stored cropped: they are resized to the input size where they have another one, never cropped.
STORED = {"crop": 1.0, "crop_mode": "center"}

#: Logits (b, K) to answers (m, b), indices of classes.
Answer = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ClassifierSetup:
    """A classifier, and how it is examined.

    Args:
        model: without its wrappers.
        preprocessing: how images are prepared for it.
        classify: pixels (B, 3, h, w) in [0, 1] to logits (B, K).
        classes: K.
        device: where it lies.
        batch_size: B.
        processes: workers that decode images; 0 decodes here, -1 takes as many as there are cores, up to 8.
    """

    model: nn.Module
    preprocessing: Preprocessing
    classify: Callable[[Tensor], Tensor]
    classes: int
    device: torch.device
    batch_size: int
    processes: int

    def settings(self, **others: Any) -> dict[str, Any]:
        """The settings of the test, resolved."""
        return {**others, "batch_size": self.batch_size, "processes": self.processes}


def classifier_setup(
    model: nn.Module,
    who: str,
    preprocessing: Given,
    batch_size: int,
    processes: int,
    *,
    classes: int | None = 1000,
    ours: Mapping[str, Any] | None = None,
    fallback: Mapping[str, Any] | None = None,
) -> ClassifierSetup:
    """A classifier with its preprocessing.

    Args:
        model: a classifier.
        who: the stress test, for errors.
        preprocessing: fields of `Preprocessing` that replace the model's own.
        batch_size, processes: of `ClassifierSetup`.
        classes: how many it must have; any with None.
        ours, fallback: fields that the test sets whatever the model declares (`STORED`), and where it declares none.
    """
    if not isinstance(model, nn.Module):
        raise VitlabError(f"{who} takes a torch.nn.Module, not {type(model).__name__}; vitlab.load makes one from text")
    if batch_size < 1 or processes < -1:
        raise VitlabError(f"{who} got batch_size={batch_size}, processes={processes}; give at least 1, and 0 or more")
    inner = unwrap(model)
    given = preprocessing
    if not isinstance(given, Preprocessing):
        check_names(given or {})
        given = {**(ours or {}), **(given or {})}
    how = preprocessing_of(inner, given, assume=fallback)
    like = next(chain(inner.parameters(), [torch.zeros(1)]))
    classify = classifier(inner, how.mean, how.std, like, who)
    found = _count_classes(inner, classify, how, like.device, who)
    if classes is not None and found != classes:
        raise VitlabError(f"{who} needs a classifier of the {classes} classes of ImageNet-1K; this one has {found}")
    return ClassifierSetup(inner, how, classify, found, like.device, batch_size, processes)


def first_choice(logits: Tensor) -> Tensor:
    """One answer, (1, b): the argmax over all classes."""
    return logits.argmax(1)[None]


def classify_set(
    who: ClassifierSetup, images: ImageSet, name: str, total: int, answer: Answer = first_choice
) -> tuple[np.ndarray, list[str]]:
    """Show a model a set of images, as one step of the step cache: an interrupted run resumes at the next set.

    Args:
        who: the classifier.
        images: the set; where it lies in files, broken ones come marked.
        name: of the step. The set's fingerprint joins it: answers to other files are not taken for these.
        total: how many steps the test has.
        answer: what to read from the logits.

    Returns:
        (m, n) answers, NaN where an image could not be read; and the paths of those.
    """

    def find() -> dict[str, np.ndarray]:
        answers = _answers(who, images, answer)
        paths = [os.fsencode(path) for path in images.broken_paths] if isinstance(images, ImageFiles) else []
        if len(paths) == len(images):
            raise VitlabError(f"none of the {len(images)} images of {name} can be read, {os.fsdecode(paths[0])} first")
        return {"answers": answers, "broken": np.array(paths, dtype=np.bytes_)}

    kept = step(f"{name} [{images.fingerprint[:8]}]", total, find)
    return kept["answers"], [path.decode("utf-8", "backslashreplace") for path in kept["broken"].tolist()]


def right(answers: np.ndarray, labels: Tensor) -> np.ndarray:
    """Marks (…, n): 1 where the answer is the label, 0 where not, NaN where there is none.

    >>> right(np.array([3.0, 4.0, np.nan]), torch.tensor([3, 3, 3])).tolist()
    [1.0, 0.0, nan]
    """
    marks: np.ndarray = np.where(np.isnan(answers), np.nan, answers == labels.numpy())
    return marks


def mean_over_sets(each: np.ndarray) -> tuple[float, float]:
    """The mean of the means of several sets, and its standard error where the sets show the same images.

    An image counts as one, in however many sets it is: e² = n / (n − 1) Σ_i (Σ_s (x_si − x̄_s) / (S n_s))², which is
    s² / n, the usual one, where every set holds every image.

    Args:
        each: (S, n) marks, NaN where a set lacks an image; sets without any are left out.

    >>> mean, error = mean_over_sets(np.array([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, np.nan]]))
    >>> round(mean, 4)  # of ½ and ⅓
    0.4167
    """
    there = ~np.isnan(each)
    each, there = each[there.any(1)], there[there.any(1)]
    if not len(each):
        return float("nan"), float("nan")
    counts = there.sum(1)
    means = np.where(there, each, 0).sum(1) / counts
    pulls = (np.where(there, each - means[:, None], 0) / counts[:, None]).mean(0)
    images = int(there.any(0).sum())
    error = np.sqrt(images / (images - 1) * (pulls**2).sum()) if images > 1 else float("nan")
    return float(means.mean()), float(error)


def about(
    who: ClassifierSetup,
    data: str,
    images: int,
    broken: Sequence[str],
    missing: Mapping[str, Sequence[str]],
    partial: bool = False,
    **extra: Any,
) -> dict[str, Any]:
    """Provenance of a result: what was there and what was not.

    Args:
        who: the classifier.
        data: which files.
        images: how many were classified.
        broken: paths of those that could not be read.
        missing: `sets`, `classes`: names of what the official set has and this folder has not.
        partial: what else makes the result one of a part of the set; missing and broken files do.
        extra: whatever else is known.
    """
    lost = {f"missing_{kind}": list(names) for kind, names in missing.items()}
    incomplete = partial or bool(broken) or any(lost.values())
    found = {"broken": len(broken), "broken_files": list(broken), "preprocessing": who.preprocessing.record()}
    return provenance(device=str(who.device), data=data, images=images, partial=incomplete, **lost, **found, **extra)


def walk(who: ClassifierSetup, images: Dataset[Any], batch_size: int | None) -> Iterator[Any]:
    """The items of a set in their order, in batches or, with None, as they are; the random state is left alone."""
    processes = min(os.cpu_count() or 1, 8) if who.processes < 0 else who.processes
    pinned = who.device.type == "cuda"
    own = torch.Generator()  # else the loader draws from everyone's
    yield from DataLoader(images, batch_size, num_workers=processes, pin_memory=pinned, generator=own)


@dataclass(frozen=True)
class _Shown(Dataset[tuple[Tensor, int]]):
    images: ImageSet
    transform: Callable[[Image.Image], Tensor]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image, label = self.images[i]
        return self.transform(image), label


def _answers(who: ClassifierSetup, images: ImageSet, answer: Answer) -> np.ndarray:
    found = []
    with eval_mode(who.model):
        for pixels, labels in walk(who, _Shown(images, who.preprocessing.transform()), who.batch_size):
            good = labels != IGNORED
            logits = torch.zeros(0, who.classes)
            if bool(good.any()):
                logits = who.classify(pixels[good].to(who.device).float() / 255).cpu()
            answers = answer(logits).double().numpy()
            padded = np.full((len(answers), len(labels)), np.nan)
            padded[:, good.numpy()] = answers
            found.append(padded)
    return np.concatenate(found, axis=1)


def _count_classes(
    model: nn.Module, classify: Callable[[Tensor], Tensor], how: Preprocessing, device: torch.device, who: str
) -> int:
    try:
        with eval_mode(model):
            return int(classify(torch.zeros(1, 3, *how.size, device=device)).shape[1])
    except VitlabError:
        raise
    except Exception as error:  # whatever a foreign forward raises, the user learns which input it was
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        height, width = how.size
        raise VitlabError(
            f"{who}: {type(model).__name__} does not run on {height}x{width} images ({reason}); "
            "give preprocessing={'size': (height, width)}"
        ) from error
