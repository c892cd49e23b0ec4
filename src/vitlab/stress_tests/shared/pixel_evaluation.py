"""Evaluate a classifier under perturbations of the pixels: per-image correctness and standard errors.

Shape legend: B batch, C channels, K classes, h w pixels, n images in all, S perturbations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.adapters.wrappers import unwrap
from vitlab.core.batches import Batches, reiterable
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.pooling import derive
from vitlab.core.provenance import provenance
from vitlab.core.step_cache import step
from vitlab.eval_mode import eval_mode
from vitlab.preprocessing import normalisation_of

_TOLERANCE = 0.02  # pixels may exceed [0, 1] by this: rounding in half precision and overshoot of a resize


@dataclass(frozen=True)
class PixelBatch:
    """A batch of images as pixels.

    Args:
        pixels: (B, C, h, w) float32 in [0, 1].
        labels: (B,) class indices.
        indices: positions of the images, counted over all batches. They key the random numbers.
        classify: maps pixels (B, C, h, w) to logits (B, K), including the model's normalisation.
    """

    pixels: Tensor
    labels: Tensor
    indices: Sequence[int]
    classify: Callable[[Tensor], Tensor]


#: Maps a batch to perturbed pixels (B, C, h, w).
Perturbation = Callable[[PixelBatch], Tensor]


@dataclass(frozen=True)
class Outcome:
    """Per-image correctness, clean and under each perturbation.

    Args:
        clean: (n,) 1.0 where the clean image is classified as its label, else 0.0.
        perturbed: (S, n) the same under each perturbation.
        classes: K.
        size: (h, w) of the images.
        about: the provenance.
        pixels: yields the images as pixels, in the same order.
    """

    clean: np.ndarray
    perturbed: np.ndarray
    classes: int
    size: tuple[int, int]
    about: Mapping[str, Any]
    pixels: Callable[[], Iterable[PixelBatch]] = tuple


def evaluate_perturbations(
    model: nn.Module,
    batches: Iterable[Any],
    test_name: str,
    perturbations: Sequence[tuple[str, Perturbation]],
    images: int | None = None,
) -> Outcome:
    """Classify the images clean and under each perturbation. Each is one pass over the data and one cached step.

    The model runs in evaluation mode; its state is restored on exit.

    Args:
        model: a classifier.
        batches: yields (images, targets), in the same order in each iteration. Batches that can be iterated only once
            are first collected into a list.
        test_name: the name of the stress test, for errors.
        perturbations: (name, function) pairs with unique names. A function maps a `PixelBatch` to pixels (B, C, h, w).
        images: number of images, from the start; default all.
    """
    inner = unwrap(model)
    device = next((parameter.device for parameter in inner.parameters()), torch.device("cpu"))
    mean, std = normalisation(inner, batches, test_name)
    read = reiterable(batches, lambda items: validated_batches(items, test_name, images))

    def pixels() -> Iterator[PixelBatch]:
        count = 0
        for given, targets in read():
            yield _in_pixels(inner, given.to(device), mean, std, range(count, count + len(given)), test_name, targets)
            count += len(given)

    steps: list[Mapping[str, np.ndarray]] = []
    with eval_mode(inner):
        for name, perturbation in [("clean", _unchanged), *perturbations]:
            steps.append(step(name, 1 + len(perturbations), partial(_correct, pixels, perturbation, test_name)))
    correct = np.stack([each["correct"] for each in steps])
    about = provenance(device=str(device), images=correct.shape[1], data=getattr(batches, "fingerprint", ""))
    h, w = next(iter(read()))[0].shape[-2:]
    return Outcome(correct[0], correct[1:], int(steps[0]["classes"]), (h, w), about, pixels)


def mean_and_error(each: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean over the images and its standard error, s / √n with n − 1 in s².

    Applied to per-image differences, this is the paired standard error.

    Args:
        each: (…, n) one number per image.

    >>> mean, error = mean_and_error(np.array([0.0, 0.0, 1.0, 1.0]))
    >>> float(mean), round(float(error), 4)  # √(¼ / 3)
    (0.5, 0.2887)
    """
    return each.mean(-1), each.std(-1, ddof=1) / np.sqrt(each.shape[-1])


#: By value of `accuracies`, the name of its standard error.
ERRORS = {"accuracy": "standard_error", "drop": "drop_error", "clean_accuracy": "clean_error"}

#: How the values of `accuracies` are derived from per-image correctness.
POOLING = {
    "correct": ("concatenate", "image"),
    "clean_correct": ("concatenate", "image"),
    "accuracy": ("mean_of", "each", "correct"),
    "standard_error": ("error_of", "each", "correct"),
    "drop": ("mean_of", "drop", "clean_correct", "correct"),
    "drop_error": ("error_of", "drop", "clean_correct", "correct"),
    "clean_accuracy": ("mean_of", "each", "clean_correct"),
    "clean_error": ("error_of", "each", "clean_correct"),
}


def accuracies(outcome: Outcome, perturbed: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Returns the values that every stress test reports, for `perturbed` (…, n), default `outcome.perturbed`.

    Returns:
        `accuracy` and `standard_error` (…), `drop` (clean minus perturbed) and the paired `drop_error` (…),
        `clean_accuracy` and `clean_error` (). They are derived by `POOLING` from `correct` (…, image) and
        `clean_correct` (image), which are included so that models can be compared image by image.
    """
    perturbed = outcome.perturbed if perturbed is None else perturbed
    return derive({"correct": perturbed > 0.5, "clean_correct": outcome.clean > 0.5}, POOLING)


def numbers(given: Any) -> tuple[Any, ...]:
    """Returns one number or several as a tuple of Python numbers.

    >>> numbers(0.5), numbers([0.5, 1]), numbers(np.array([2, 4]))
    ((0.5,), (0.5, 1), (2, 4))
    """
    several = tuple(given) if isinstance(given, Iterable) else (given,)
    return tuple(each.item() if hasattr(each, "item") else each for each in several)


def result(
    test_name: str,
    model: nn.Module,
    values: Mapping[str, np.ndarray],
    axes: Mapping[str, Sequence[Any]],
    settings: Mapping[str, Any],
    about: Mapping[str, Any],
    errors: Mapping[str, str] = ERRORS,
    pooling: Mapping[str, tuple[str, ...]] = POOLING,
) -> Measurement:
    """Returns the Measurement. A value with d dimensions has the first d axes; per-image values also have `image`.

    Args:
        test_name: the name of the stress test.
        model: the tested model.
        values: the values, for example those of `accuracies`.
        axes: labels along each axis.
        settings: the settings of the stress test.
        about: the provenance.
        errors: by value, the name of its standard error.
        pooling: how values are combined over parts of the images.
    """
    dims = {name: tuple(axes)[: np.ndim(value)] for name, value in values.items()}
    for name, rule in pooling.items():
        if rule == ("concatenate", "image"):
            dims[name] = (*tuple(axes)[: np.ndim(values[name]) - 1], "image")
    labels = {name: tuple(along) for name, along in axes.items()}
    subject = type(unwrap(model)).__name__
    return Measurement(test_name, subject, values, dims, labels, dict(settings), dict(about), errors, pooling)


def normalisation(model: nn.Module, batches: Any, test_name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns mean and std by channel: those of `Batches`, else those that the model declares."""
    if isinstance(batches, Batches):
        return tuple(batches.mean), tuple(batches.std)
    known = normalisation_of(model)
    if known is None:
        raise VitlabError(
            f"{test_name} needs the normalisation of the images and {type(model).__name__} does not declare one; "
            "set preprocessing= with mean and std, or use Batches(items, mean=…, std=…)"
        )
    return known


def classifier(
    model: nn.Module, mean: Sequence[float], std: Sequence[float], like: Tensor, test_name: str
) -> Callable[[Tensor], Tensor]:
    """Returns the model as a function from pixels to float32 logits; it runs with the device and dtype of `like`."""
    shift, scale = (torch.tensor(each, device=like.device).view(-1, 1, 1) for each in (mean, std))

    def classify(pixels: Tensor) -> Tensor:
        logits = model(((pixels - shift) / scale).to(like.dtype))
        logits = getattr(logits, "logits", logits)
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise VitlabError(f"{test_name} needs a classifier; {type(model).__name__} does not return logits (B, K)")
        if not bool(logits.isfinite().all()):
            raise VitlabError(f"{test_name}: logits are not finite; check the model's weights and the images for NaN")
        return logits.float()

    return classify


def to_pixels(given: Tensor, mean: Sequence[float], std: Sequence[float], test_name: str) -> Tensor:
    """Undo the normalisation. Raises an error if the result is not in [0, 1]: mean and std are then wrong."""
    if {len(mean), len(std)} - {1, given.shape[1]}:
        raise VitlabError(
            f"{test_name}: invalid mean={mean}, std={std}; expected one number for each of {given.shape[1]} channels"
        )
    scale, shift = (torch.tensor(each, device=given.device).view(-1, 1, 1) for each in (std, mean))
    pixels = given.float() * scale + shift
    low, high = (float(bound) for bound in torch.aminmax(pixels))
    if not (low >= -_TOLERANCE and high <= 1 + _TOLERANCE):  # also true for NaN
        raise VitlabError(
            f"{test_name}: images * std + mean range from {low:.3g} to {high:.3g}, not in [0, 1]; "
            f"check that they were normalised with mean {tuple(mean)} and std {tuple(std)}"
        )
    return pixels.clamp(0, 1)


def _in_pixels(
    model: nn.Module,
    given: Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    indices: range,
    test_name: str,
    targets: Any,
) -> PixelBatch:
    pixels = to_pixels(given, mean, std, test_name)
    return PixelBatch(
        pixels, _labels(targets, given, test_name), indices, classifier(model, mean, std, given, test_name)
    )


def _labels(targets: Any, given: Tensor, test_name: str) -> Tensor:
    """Returns class indices (B,), from class indices or from probabilities (B, K) by argmax."""
    labels = targets.argmax(1) if isinstance(targets, Tensor) and targets.ndim == 2 else targets
    if not isinstance(labels, Tensor) or labels.shape != given.shape[:1] or labels.is_floating_point():
        raise VitlabError(f"{test_name} needs class indices (B,) or probabilities (B, K) for {len(given)} images")
    return labels.to(given.device).long()


def _unchanged(batch: PixelBatch) -> Tensor:
    return batch.pixels


def _correct(
    batches: Callable[[], Iterable[PixelBatch]], perturbation: Perturbation, test_name: str
) -> dict[str, np.ndarray]:
    """One pass under one perturbation: `correct` (n,) float64, 1 where correct; `classes` (), K."""
    correct: list[bool] = []
    classes = 0
    for batch in batches():
        logits = batch.classify(perturbation(batch))
        classes = int(logits.shape[1])
        low, high = int(batch.labels.min()), int(batch.labels.max())
        if low < 0 or high >= classes:
            raise VitlabError(f"invalid labels from {low} to {high}; the model has {classes} classes")
        correct += (logits.argmax(1) == batch.labels).tolist()
    if len(correct) < 2:
        raise VitlabError(f"{test_name} computes standard errors and needs at least two images; got {len(correct)}")
    return {"correct": np.array(correct, float), "classes": np.array(classes)}


def validated_batches(
    batches: Iterable[Any], test_name: str, count: int | None, least: int = 2
) -> Iterator[tuple[Tensor, Any]]:
    """Yield (images, targets) batches with exactly `count` images in total, at least `least`; None yields all."""
    if count is not None and count < least:
        raise VitlabError(f"invalid images={count} for {test_name}; expected at least {least}, or None for all")
    seen = 0
    for item in batches:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise VitlabError(f"{test_name} needs labels: batches must yield (images, targets)")
        images, targets = item
        if not isinstance(images, Tensor) or images.ndim != 4 or not images.numel():
            raise VitlabError(f"{test_name} needs batches of images of shape (B, C, h, w) with at least one image")
        left = len(images) if count is None else min(len(images), count - seen)
        yield (images, targets) if left == len(images) else (images[:left], targets[:left])
        seen += left
        if seen == count:
            return
    if count is not None:
        raise VitlabError(f"invalid images={count} for {test_name}; the data has only {seen} images")
