"""Batches of a data set in a model's input format: preprocessed, with matched labels, plain or augmented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.nn.functional import one_hot

from vitlab.adapters import blank_images
from vitlab.adapters.wrappers import unwrap
from vitlab.core import plugins
from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.recipe import Augment
from vitlab.data.catalogue import open_data
from vitlab.data.images import DataSet, ImageArray, ImageFiles, ImageSet, in_memory
from vitlab.data.resident import TrainingBatch
from vitlab.data.streaming import ImageStream
from vitlab.data.workers import Workers
from vitlab.eval_mode import eval_mode
from vitlab.inputs.parts import DEFAULT_IMAGES, count_images, fingerprint_of, spread
from vitlab.preprocessing import LabelMatch, Preprocessing, input_size, match_labels, preprocessing_of
from vitlab.preprocessing.resolution import Given

Split = Literal["test", "train"]


class NoTrainingImagesError(VitlabError):
    """Training images were requested from a data set that has none."""


@dataclass(frozen=True)
class Augmentation:
    """Augmented images of a training run.

    Args:
        settings: the transforms of an image, and how images are mixed.
        smoothing: label smoothing of the targets.
        name: where the settings come from, for provenance.
    """

    settings: Augment
    smoothing: float = 0.0
    name: str = "given"


def augmentation_of(recipe: str) -> Augmentation:
    """The augmentation of a recipe, by its name with optional settings.

    >>> augmentation_of("deit_imagenet").smoothing
    0.1
    """
    made = plugins.recipe(recipe)
    return Augmentation(made.augment, made.objective.smoothing, recipe)


def batches_for(
    model: nn.Module,
    data: str,
    images: int | None = None,
    root: Path | None = None,
    batch_size: int = 16,
    *,
    split: Split = "test",
    augmentation: Augmentation | str | None = None,
    preprocessing: Given = None,
    classes: Mapping[str, Any] | Sequence[str] | None = None,
) -> Batches:
    """Returns images of a data set in a model's input format, with labels that index the model's outputs.

    Images are chosen at even distances over the set, because many sets are sorted by class.

    Args:
        model: decides the preprocessing and the order of the labels.
        data: a data expression.
        images: the number of images; by default 64, or all where there are fewer.
        root: the folder that holds the data sets.
        batch_size: images per batch.
        split: `test`, or `train` for training images.
        augmentation: augment and mix the images of each batch, as the recipe of this name does or as given; targets
            are then probabilities (B, outputs), mixed and smoothed.
        preprocessing: a `Preprocessing`, or fields that replace the model's own.
        classes: the output of each class, where names do not match: see `match_labels`.
    """
    return parts_for(
        model,
        data,
        images,
        1,
        root,
        batch_size,
        split=split,
        augmentation=augmentation_of(augmentation) if isinstance(augmentation, str) else augmentation,
        preprocessing=preprocessing,
        classes=classes,
    )[0]


def parts_for(
    model: nn.Module,
    data: str,
    images: int | None,
    repeats: int,
    root: Path | None = None,
    batch_size: int = 16,
    *,
    split: Split = "test",
    augmentation: Augmentation | None = None,
    preprocessing: Given = None,
    classes: Mapping[str, Any] | Sequence[str] | None = None,
) -> list[Batches]:
    """The images of `batches_for`, split into disjoint parts: image i goes to part i mod `repeats`."""
    if split not in get_args(Split):
        raise unknown("split", split, get_args(Split))
    if images is not None and (not isinstance(images, int) or images < 1):
        raise VitlabError(f"invalid images={images!r}; expected 1 or more")
    if not isinstance(batch_size, int) or batch_size < 1:
        raise VitlabError(f"invalid batch_size={batch_size!r}; expected 1 or more")
    opened, resolved = open_for(model, data, root, preprocessing)
    chosen_from = opened.test if split == "test" else opened.train
    if chosen_from is None:
        raise NoTrainingImagesError(f"{data!r} has no training images; give data that has a training set")
    count = count_images(images, len(chosen_from), repeats, f"the {split} set of {data!r}", DEFAULT_IMAGES)
    match = label_match(model, opened, resolved, classes)
    parts = []
    for first in range(repeats):
        places = spread(len(chosen_from), count, first, repeats)
        chosen = replace(chosen_from.subset(places), mean=resolved.mean, std=resolved.std)
        fingerprint = fingerprint_of(data, split, chosen, len(chosen_from), count, first, repeats)
        loaded = in_memory(chosen)
        if augmentation is None:
            parts.append(_plain(loaded, resolved, match, batch_size, fingerprint))
        else:
            parts.append(_augmented(loaded, resolved, match, batch_size, first, fingerprint, augmentation))
    return parts


def open_for(
    model: nn.Module, data: str, root: Path | None = None, given: Given = None
) -> tuple[DataSet, Preprocessing]:
    """Open a data set and resolve a model's preprocessing; where the model declares none, mean and std of the data."""
    opened = open_data(data, root=root, image_size=input_size(model, given))
    return opened, preprocessing_of(model, given, assume={"mean": opened.mean, "std": opened.std})


def label_match(
    model: nn.Module,
    data: DataSet,
    preprocessing: Preprocessing,
    given: Mapping[str, Any] | Sequence[str] | None = None,
) -> LabelMatch:
    """Match the classes of the data with the outputs of the model."""
    try:
        outputs = count_outputs(model, preprocessing.size)
    except VitlabError as error:
        return LabelMatch((), 0, why_not=str(error))
    return match_labels(data.classes, outputs, preprocessing.classes, given)


def count_outputs(model: nn.Module, size: tuple[int, int]) -> int:
    """The number of logits of a classifier, from one forward of a blank image."""
    inner = unwrap(model)
    try:
        with eval_mode(inner):
            output = inner(blank_images(inner, size)[:1])
    except Exception as error:  # a forward of another library can raise anything
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise VitlabError(f"{type(inner).__name__} does not run on {size[0]}x{size[1]} images ({reason})") from error
    logits = getattr(output, "logits", output)
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2:
        raise VitlabError(f"{type(inner).__name__} does not return logits (B, classes), so labels cannot be used")
    return int(logits.shape[1])


def _plain(
    chosen: ImageSet, preprocessing: Preprocessing, match: LabelMatch, batch_size: int, fingerprint: str
) -> Batches:
    mean, std, outputs = preprocessing.mean, preprocessing.std, match.outputs or None
    stream = ImageStream(chosen, preprocessing.transform(), mean, std, batch_size, outputs)
    names, how = _names(chosen, match), preprocessing.record()
    labels = (match.how, match.why_not, match.outputs)
    return Batches(stream, mean, std, names, fingerprint, how, *labels, count=len(chosen))


def _augmented(
    chosen: ImageArray | ImageFiles,
    preprocessing: Preprocessing,
    match: LabelMatch,
    batch_size: int,
    seed: int,
    fingerprint: str,
    augmentation: Augmentation,
) -> Batches:
    """Each batch is a separate epoch, so that the last, incomplete batch is included."""
    if isinstance(chosen, ImageFiles):
        chosen = replace(chosen, on_broken="replace")
    settings = replace(augmentation.settings, repeats=1, patches=False)
    items = []
    for start in range(0, len(chosen), batch_size):
        subset = chosen.subset(range(start, min(start + batch_size, len(chosen))))
        workers = Workers(subset, preprocessing.size, settings, batch_size=len(subset), seed=seed, processes=0)
        (batch,) = workers.epoch(start)
        items.append((batch.images, _probabilities(batch, match, augmentation.smoothing)))
    record = {
        **preprocessing.record(),
        "augmentation": {"name": augmentation.name, **asdict(settings), "smoothing": augmentation.smoothing},
    }
    about = f"{fingerprint}, augmented by {augmentation.name}: batches of {batch_size}, seed {seed}"
    mean, std, names = preprocessing.mean, preprocessing.std, _names(chosen, match)
    labels = (match.how, match.why_not, match.outputs)
    return Batches(items, mean, std, names, about, record, *labels, count=len(chosen))


def _probabilities(batch: TrainingBatch, match: LabelMatch, smoothing: float) -> torch.Tensor:
    """(B, outputs) targets of mixed images, smoothed as in torch's cross entropy; NaN without labels."""
    if not match.outputs:
        return torch.full((len(batch.labels), 1), float("nan"))
    table = torch.tensor(match.outputs)
    first, second = (one_hot(table[each], match.of).float() for each in (batch.labels, batch.partners))
    mixed = torch.lerp(second, first, batch.weights.float()[:, None])
    return (1 - smoothing) * mixed + smoothing / match.of


def _names(chosen: ImageSet, match: LabelMatch) -> Sequence[str]:
    """The names of the targets: those of the model's outputs; those of the data if there is no match."""
    return match.names if match.outputs else chosen.classes
