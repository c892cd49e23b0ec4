"""Classify sets of image files: the preprocessing of each image, the predictions, and standard errors over sets.

Shape legend: B batch, b readable images of a batch, K classes, h w pixels, n images, m predictions per image, S sets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from vitlab.adapters.wrappers import unwrap
from vitlab.core.bounds import Range
from vitlab.core.errors import VitlabError
from vitlab.core.provenance import provenance
from vitlab.core.step_cache import step
from vitlab.data.images import IGNORED, ImageFiles, ImageSet
from vitlab.data.streaming import TransformedImages
from vitlab.eval_mode import eval_mode
from vitlab.preprocessing import Preprocessing, preprocessing_of, same_order
from vitlab.preprocessing.description import check_names
from vitlab.preprocessing.resolution import Given
from vitlab.stress_tests.shared.pixel_evaluation import classifier

#: Preprocessing of images that are stored cropped: they are resized if the input size differs, never cropped.
STORED = {"crop": 1.0, "crop_mode": "center"}

#: Maps logits (b, K) to predictions (m, b), class indices.
Predict = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ClassifierSetup:
    """A classifier and the settings of its evaluation.

    Args:
        model: the model without its wrappers.
        preprocessing: the preprocessing of the images.
        classify: maps pixels (B, 3, h, w) in [0, 1] to logits (B, K).
        classes: K.
        device: the device of the model.
        batch_size: B.
        processes: worker processes that decode images. 0 decodes in the main process; -1 uses one per CPU core, at
            most 8.
    """

    model: nn.Module
    preprocessing: Preprocessing
    classify: Callable[[Tensor], Tensor]
    classes: int
    device: torch.device
    batch_size: int
    processes: int

    def settings(self, **others: Any) -> dict[str, Any]:
        """Returns the settings of the test, with their final values."""
        return {**others, "batch_size": self.batch_size, "processes": self.processes}


#: Images per forward pass.
BatchSize = Annotated[int, Range(1, 65_536)]
#: Worker processes; -1 for one per CPU core.
Processes = Annotated[int, Range(-1, 256)]


def classifier_setup(
    model: nn.Module,
    test_name: str,
    preprocessing: Given,
    batch_size: int,
    processes: int,
    *,
    classes: int | None = 1000,
    override: Mapping[str, Any] | None = None,
    fallback: Mapping[str, Any] | None = None,
) -> ClassifierSetup:
    """Returns a classifier with its preprocessing.

    Args:
        model: a classifier.
        test_name: the name of the stress test, for errors.
        preprocessing: fields of `Preprocessing` that override the model's own.
        batch_size, processes: see `ClassifierSetup`.
        classes: the required number of classes; None allows any.
        override: fields that the test sets regardless of what the model declares, for example `STORED`.
        fallback: fields for models that declare none.
    """
    inner = unwrap(model)
    given = preprocessing
    if not isinstance(given, Preprocessing):
        check_names(given or {})
        given = {**(override or {}), **(given or {})}
    resolved = preprocessing_of(inner, given, assume=fallback)
    like = next(chain(inner.parameters(), [torch.zeros(1)]))
    classify = classifier(inner, resolved.mean, resolved.std, like, test_name)
    count = _count_classes(inner, classify, resolved, like.device, test_name)
    if classes is not None and count != classes:
        raise VitlabError(
            f"{test_name} expects a classifier of the {classes} classes of ImageNet-1K; this model has {count} classes"
        )
    return ClassifierSetup(inner, resolved, classify, count, like.device, batch_size, processes)


def argmax_over_all(logits: Tensor) -> Tensor:
    """Returns one prediction per image, (1, b): the argmax over all classes."""
    return logits.argmax(1)[None]


def classify_set(
    setup: ClassifierSetup, images: ImageSet, name: str, total: int, predict: Predict = argmax_over_all
) -> tuple[np.ndarray, list[str]]:
    """Classify a set of images as one step of the step cache; an interrupted run resumes at the next set.

    Args:
        setup: the classifier.
        images: the set. Unreadable files are marked with the label `IGNORED`.
        name: the name of the step. The fingerprint of the set is appended, so predictions for other files are not
            reused.
        total: the number of steps of the test.
        predict: maps logits to predictions.

    Returns:
        Predictions (m, n), NaN for unreadable images; and the paths of the unreadable images.
    """
    outputs = setup.preprocessing.classes
    if not same_order(outputs, images.classes):
        raise VitlabError(
            f"the labels of {name} are positions in the order {', '.join(images.classes[:2])}, …; the outputs of this "
            f"model are {', '.join(outputs[:2])}, …; use a model with the outputs of the set"
        )

    def compute() -> dict[str, np.ndarray]:
        predictions = _predictions(setup, images, predict)
        paths = [os.fsencode(path) for path in images.broken_paths] if isinstance(images, ImageFiles) else []
        if len(paths) == len(images):
            first = os.fsdecode(paths[0])
            raise VitlabError(f"cannot read any of the {len(images)} images of {name}; the first is {first}")
        return {"answers": predictions, "broken": np.array(paths, dtype=np.bytes_)}

    cached = step(f"{name} [{images.fingerprint[:8]}]", total, compute)
    return cached["answers"], [path.decode("utf-8", "backslashreplace") for path in cached["broken"].tolist()]


def is_correct(predictions: np.ndarray, labels: Tensor) -> np.ndarray:
    """Returns (…, n): 1 where the prediction equals the label, 0 where it does not, NaN where it is NaN.

    >>> is_correct(np.array([3.0, 4.0, np.nan]), torch.tensor([3, 3, 3])).tolist()
    [1.0, 0.0, nan]
    """
    correct: np.ndarray = np.where(np.isnan(predictions), np.nan, predictions == labels.numpy())
    return correct


def mean_over_sets(each: np.ndarray) -> tuple[float, float]:
    """Returns the mean of the means of several sets, and its standard error if the sets contain the same images.

    Each image is one observation, however many sets contain it: e² = n / (n − 1) Σ_i (Σ_s (x_si − x̄_s) / (S n_s))².
    This equals the usual s² / n if every set contains every image.

    Args:
        each: (S, n) one number per set and image, NaN where a set lacks an image. Empty sets are skipped.

    >>> mean, error = mean_over_sets(np.array([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, np.nan]]))
    >>> round(mean, 4)  # of ½ and ⅓
    0.4167
    """
    present = ~np.isnan(each)
    each, present = each[present.any(1)], present[present.any(1)]
    if not len(each):
        return float("nan"), float("nan")
    counts = present.sum(1)
    means = np.where(present, each, 0).sum(1) / counts
    deviations = (np.where(present, each - means[:, None], 0) / counts[:, None]).mean(0)
    images = int(present.any(0).sum())
    error = np.sqrt(images / (images - 1) * (deviations**2).sum()) if images > 1 else float("nan")
    return float(means.mean()), float(error)


def file_provenance(
    setup: ClassifierSetup,
    data: str,
    images: int,
    broken: Sequence[str],
    missing: Mapping[str, Sequence[str]],
    partial: bool = False,
    **extra: Any,
) -> dict[str, Any]:
    """Returns the provenance of a result on files: what was read, what is broken and what is missing.

    Args:
        setup: the classifier.
        data: the fingerprint of the files.
        images: the number of classified images.
        broken: paths of unreadable files.
        missing: `sets`, `classes`: names of what the official set has and this folder lacks.
        partial: whether the result is partial for another reason than missing or broken files.
        extra: further entries.
    """
    lacking = {f"missing_{kind}": list(names) for kind, names in missing.items()}
    incomplete = partial or bool(broken) or any(lacking.values())
    record = {"broken": len(broken), "broken_files": list(broken), "preprocessing": setup.preprocessing.record()}
    device = str(setup.device)
    return provenance(device=device, data=data, images=images, partial=incomplete, **lacking, **record, **extra)


def iterate(setup: ClassifierSetup, images: Dataset[Any], batch_size: int | None) -> Iterator[Any]:
    """Iterate over a set in order, in batches, or item by item if `batch_size` is None; keeps the global RNG state."""
    processes = min(os.cpu_count() or 1, 8) if setup.processes < 0 else setup.processes
    pinned = setup.device.type == "cuda"
    own = torch.Generator()  # otherwise the loader draws from the global generator
    yield from DataLoader(images, batch_size, num_workers=processes, pin_memory=pinned, generator=own)


def _predictions(setup: ClassifierSetup, images: ImageSet, predict: Predict) -> np.ndarray:
    """Returns predictions (m, n), NaN for unreadable images."""
    parts = []
    with eval_mode(setup.model):
        for pixels, labels in iterate(
            setup, TransformedImages(images, setup.preprocessing.transform()), setup.batch_size
        ):
            readable = labels != IGNORED
            logits = torch.zeros(0, setup.classes)
            if bool(readable.any()):
                logits = setup.classify(pixels[readable].to(setup.device).float() / 255).cpu()
            predictions = predict(logits).double().numpy()
            padded = np.full((len(predictions), len(labels)), np.nan)
            padded[:, readable.numpy()] = predictions
            parts.append(padded)
    return np.concatenate(parts, axis=1)


def _count_classes(
    model: nn.Module,
    classify: Callable[[Tensor], Tensor],
    preprocessing: Preprocessing,
    device: torch.device,
    test_name: str,
) -> int:
    """Returns K, from a forward pass on one black image."""
    height, width = preprocessing.size
    try:
        with eval_mode(model):
            return int(classify(torch.zeros(1, 3, height, width, device=device)).shape[1])
    except VitlabError:
        raise
    except Exception as error:  # a forward may raise anything; the error names the input that caused it
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        raise VitlabError(
            f"{test_name}: {type(model).__name__} fails on {height}x{width} images ({reason}); "
            "set preprocessing={'size': (height, width)}"
        ) from error
