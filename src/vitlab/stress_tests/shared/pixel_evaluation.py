"""A classifier on trial: pixels in and out, right or wrong image by image, standard errors.

Shape legend: B batch, C channels, K classes, h w pixels, n images in all, S perturbations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
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

_OUTSIDE = 0.02  # how far pixels may lie outside [0, 1]: what half precision and a resize leave behind


@dataclass(frozen=True)
class PixelBatch:
    """A batch in pixels.

    Args:
        pixels: (B, C, h, w) float32 in [0, 1].
        labels: (B,) class indices.
        indices: which images these are, counted over all batches: the key of their random numbers.
        classify: pixels (B, C, h, w) to logits (B, K), with the model's own normalisation inside.
    """

    pixels: Tensor
    labels: Tensor
    indices: Sequence[int]
    classify: Callable[[Tensor], Tensor]


Perturbation = Callable[[PixelBatch], Tensor]


@dataclass(frozen=True)
class Outcome:
    """Who was right where.

    Args:
        clean: (n,) 1.0 where the untouched image is classified as its label, else 0.0.
        perturbed: (S, n) the same under each perturbation.
        classes: K.
        size: (h, w) of the images.
        about: provenance.
    """

    clean: np.ndarray
    perturbed: np.ndarray
    classes: int
    size: tuple[int, int]
    about: Mapping[str, Any]


def evaluate_perturbations(
    model: nn.Module,
    batches: Iterable[Any],
    who: str,
    perturbations: Sequence[tuple[str, Perturbation]],
    images: int | None = None,
) -> Outcome:
    """Classify the images untouched and under each perturbation; each is one pass and one cached step.

    The model runs in evaluation mode and is left as it was found.

    Args:
        model: a classifier.
        batches: yields (images, targets), in the same order each time they are walked; batches that can be walked only
            once are first gathered into a list.
        who: the stress test, for errors.
        perturbations: (name, function) pairs with unique names; a function takes a `PixelBatch` and returns pixels
            (B, C, h, w).
        images: use the first so many; all by default.
    """
    inner = unwrap(model)
    device = next((parameter.device for parameter in inner.parameters()), torch.device("cpu"))
    mean, std = normalisation(inner, batches, who)
    walk = reiterable(batches, lambda those: labelled(those, who, images))

    def pixels() -> Iterator[PixelBatch]:
        count = 0
        for given, targets in walk():
            yield _in_pixels(inner, given.to(device), mean, std, range(count, count + len(given)), who, targets)
            count += len(given)

    found: list[Mapping[str, np.ndarray]] = []
    with eval_mode(inner):
        for name, perturbation in [("clean", _untouched), *perturbations]:
            found.append(step(name, 1 + len(perturbations), partial(_classified, pixels, perturbation, who)))
    correct = np.stack([each["correct"] for each in found])
    about = provenance(device=str(device), images=correct.shape[1], data=getattr(batches, "fingerprint", ""))
    h, w = next(iter(walk()))[0].shape[-2:]
    return Outcome(correct[0], correct[1:], int(found[0]["classes"]), (h, w), about)


def mean_and_error(each: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the images and its standard error, s / √n with n − 1 in s²; of a difference, this is the paired one.

    Args:
        each: (…, n) one number for each image.

    >>> mean, error = mean_and_error(np.array([0.0, 0.0, 1.0, 1.0]))
    >>> float(mean), round(float(error), 4)  # √(¼ / 3)
    (0.5, 0.2887)
    """
    return each.mean(-1), each.std(-1, ddof=1) / np.sqrt(each.shape[-1])


#: Which value is the standard error of which, of what `accuracies` returns.
ERRORS = {"accuracy": "standard_error", "drop": "drop_error", "clean_accuracy": "clean_error"}

#: How the values of `accuracies` follow from which images are classified correctly.
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
    """What every stress test reports of `perturbed` (…, n), by default the outcome's own.

    Returns:
        `accuracy` and `standard_error` (…), `drop` (clean minus perturbed) and the paired `drop_error` (…),
        `clean_accuracy` and `clean_error` (); and `correct` (…, image), `clean_correct` (image), from which they
        follow by `POOLING`, so that models can be compared image by image.
    """
    perturbed = outcome.perturbed if perturbed is None else perturbed
    return derive({"correct": perturbed > 0.5, "clean_correct": outcome.clean > 0.5}, POOLING)


def each_once(who: str, what: str, given: Any) -> tuple[Any, ...]:
    """One number, or several and no two the same, as a tuple.

    >>> each_once("occlusion", "ratios", 0.5), each_once("occlusion", "ratios", [0.5, 1])
    ((0.5,), (0.5, 1))
    """
    several = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    if not all(isinstance(each, Real) for each in several) or len({*several}) < len(several):
        raise VitlabError(f"{who} got {what}={given!r}; give a number, or several, each once")
    return several


def result(
    who: str,
    model: nn.Module,
    values: Mapping[str, np.ndarray],
    axes: Mapping[str, Sequence[Any]],
    settings: Mapping[str, Any],
    about: Mapping[str, Any],
    errors: Mapping[str, str] = ERRORS,
    pooling: Mapping[str, tuple[str, ...]] = POOLING,
) -> Measurement:
    """The Measurement whose values have the first of the axes, as many as each has, and `image` where they say so.

    Args:
        who: the stress test.
        model: what was tested.
        values: by default those of `accuracies`.
        axes: labels along each axis.
        settings: of the stress test.
        about: provenance.
        errors: which value is the standard error of which.
        pooling: how values are combined over parts of the images.
    """
    dims = {name: tuple(axes)[: np.ndim(value)] for name, value in values.items()}
    for name, rule in pooling.items():
        if rule == ("concatenate", "image"):
            dims[name] = (*tuple(axes)[: np.ndim(values[name]) - 1], "image")
    labels = {name: tuple(along) for name, along in axes.items()}
    who_it_is = type(unwrap(model)).__name__
    return Measurement(who, who_it_is, values, dims, labels, dict(settings), dict(about), errors, pooling)


def normalisation(model: nn.Module, batches: Any, who: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std by channel: those of `Batches`, else those that the model declares."""
    if isinstance(batches, Batches):
        return tuple(batches.mean), tuple(batches.std)
    known = normalisation_of(model)
    if known is None:
        raise VitlabError(
            f"{who} works in pixels and {type(model).__name__} does not say how images were normalised; "
            "give preprocessing= with mean and std, or Batches(items, mean=…, std=…)"
        )
    return known


def classifier(
    model: nn.Module, mean: Sequence[float], std: Sequence[float], like: Tensor, who: str
) -> Callable[[Tensor], Tensor]:
    """The model as a function of pixels, on the device and in the precision of `like`; logits come in float32."""
    shift, scale = (torch.tensor(each, device=like.device).view(-1, 1, 1) for each in (mean, std))

    def classify(pixels: Tensor) -> Tensor:
        logits = model(((pixels - shift) / scale).to(like.dtype))
        logits = getattr(logits, "logits", logits)
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise VitlabError(f"{who} needs a classifier; {type(model).__name__} does not give logits (B, K)")
        if not bool(logits.isfinite().all()):
            raise VitlabError(f"{who}: logits are not finite; check the model's weights and the images for NaN")
        return logits.float()

    return classify


def to_pixels(given: Tensor, mean: Sequence[float], std: Sequence[float], who: str) -> Tensor:
    """Images in [0, 1]; an error where mean and std cannot be those that they were normalised with."""
    if {len(mean), len(std)} - {1, given.shape[1]}:
        raise VitlabError(f"{who}: mean {mean} and std {std} do not fit images with {given.shape[1]} channels")
    scale, shift = (torch.tensor(each, device=given.device).view(-1, 1, 1) for each in (std, mean))
    pixels = given.float() * scale + shift
    low, high = (float(bound) for bound in torch.aminmax(pixels))
    if not (low >= -_OUTSIDE and high <= 1 + _OUTSIDE):  # also not a number
        raise VitlabError(
            f"{who}: images * std + mean run from {low:.3g} to {high:.3g}, not in [0, 1]; "
            f"were they normalised with mean {tuple(mean)} and std {tuple(std)}?"
        )
    return pixels.clamp(0, 1)


def _in_pixels(
    model: nn.Module, given: Tensor, mean: Sequence[float], std: Sequence[float], indices: range, who: str, targets: Any
) -> PixelBatch:
    pixels = to_pixels(given, mean, std, who)
    return PixelBatch(pixels, _labels(targets, given, who), indices, classifier(model, mean, std, given, who))


def _labels(targets: Any, given: Tensor, who: str) -> Tensor:
    """(B,) class indices, from these or from (B, K) probabilities, whose largest is the label."""
    labels = targets.argmax(1) if isinstance(targets, Tensor) and targets.ndim == 2 else targets
    if not isinstance(labels, Tensor) or labels.shape != given.shape[:1] or labels.is_floating_point():
        raise VitlabError(f"{who} needs class indices (B,) or probabilities (B, K) for {len(given)} images")
    return labels.to(given.device).long()


def _untouched(batch: PixelBatch) -> Tensor:
    return batch.pixels


def _classified(
    batches: Callable[[], Iterable[PixelBatch]], perturbation: Perturbation, who: str
) -> dict[str, np.ndarray]:
    """One walk under one perturbation: `correct` (n,) float64, 1 where right; `classes` (), K."""
    correct: list[bool] = []
    classes = 0
    for batch in batches():
        logits = batch.classify(perturbation(batch))
        classes = int(logits.shape[1])
        low, high = int(batch.labels.min()), int(batch.labels.max())
        if low < 0 or high >= classes:
            raise VitlabError(f"labels run from {low} to {high}; the model has {classes} classes")
        correct += (logits.argmax(1) == batch.labels).tolist()
    if len(correct) < 2:
        raise VitlabError(f"{who} gives standard errors and needs at least two images; {len(correct)} given")
    return {"correct": np.array(correct, float), "classes": np.array(classes)}


def labelled(batches: Iterable[Any], who: str, count: int | None, least: int = 2) -> Iterator[tuple[Tensor, Any]]:
    """The batches as (images, targets), up to exactly `count` images, which must be at least `least`."""
    if count is not None and count < least:
        raise VitlabError(f"{who} got images={count}; expected at least {least}, or None for all")
    seen = 0
    for item in batches:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise VitlabError(f"{who} needs labels: batches must yield (images, targets)")
        images, targets = item
        if not isinstance(images, Tensor) or images.ndim != 4 or not images.numel():
            raise VitlabError(f"{who} needs batches of images of shape (B, C, h, w), and at least one image")
        left = len(images) if count is None else min(len(images), count - seen)
        yield (images, targets) if left == len(images) else (images[:left], targets[:left])
        seen += left
        if seen == count:
            return
    if count is not None:
        raise VitlabError(f"{who} was asked for images={count}, but the data holds only {seen}")
