"""Batches of a data set in a model's input format: preprocessed, labels matched to its outputs, plain or augmented."""

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
from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.recipe import Augment
from vitlab.data.catalogue import open_data
from vitlab.data.images import DataSet, ImageArray, ImageFiles, ImageSet, in_memory
from vitlab.data.resident import TrainingBatch
from vitlab.data.streaming import ImageStream
from vitlab.data.workers import Workers
from vitlab.eval_mode import eval_mode
from vitlab.preprocessing import LabelMatch, Preprocessing, input_size, match_labels, preprocessing_of
from vitlab.preprocessing.resolution import Given

Split = Literal["test", "train"]


class NoTrainingImagesError(VitlabError):
    """Training images were asked for, and the data set is for evaluation only."""


#: How many images are used unless a number is given.
DEFAULT_IMAGES = 64


@dataclass(frozen=True)
class Augmentation:
    """Augmented images of a training run.

    Args:
        settings: what happens to an image, and how images are mixed.
        smoothing: label smoothing of the targets.
        name: where the settings come from, for provenance.
    """

    settings: Augment
    smoothing: float = 0.0
    name: str = "given"


def batches_for(
    model: nn.Module,
    data: str,
    images: int | None = None,
    root: Path | None = None,
    batch_size: int = 16,
    *,
    split: Split = "test",
    augmentation: Augmentation | None = None,
    preprocessing: Given = None,
    classes: Mapping[str, Any] | Sequence[str] | None = None,
) -> Batches:
    """Images of a data set in a model's input format, with labels that index the model's outputs.

    Images are chosen at even distances over the set: many sets are sorted by class.

    Args:
        model: decides the preprocessing and the order of the labels.
        data: a data expression.
        images: how many; by default 64, or all where there are fewer.
        root: the folder that holds the data sets.
        batch_size: images per batch.
        split: `test`, or `train` for training images.
        augmentation: augment and mix the images of each batch; targets are then probabilities
            (B, outputs), mixed and smoothed.
        preprocessing: a `Preprocessing`, or fields that replace the model's own.
        classes: which output each class is, where names do not tell: see `match_labels`.
    """
    return parts_for(
        model,
        data,
        images,
        1,
        root,
        batch_size,
        split=split,
        augmentation=augmentation,
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
        raise VitlabError(f"images={images!r}: at least one image is needed")
    if not isinstance(batch_size, int) or batch_size < 1:
        raise VitlabError(f"batch_size={batch_size!r}: a batch has at least one image")
    opened, how = open_for(model, data, root, preprocessing)
    chosen_from = opened.test if split == "test" else opened.train
    if chosen_from is None:
        raise NoTrainingImagesError(f"{data!r} has no training images; give data that has a training set")
    count = _count(images, len(chosen_from), repeats, f"the {split} set of {data!r}")
    match = label_match(model, opened, how, classes)
    parts = []
    for first in range(repeats):
        places = [place * len(chosen_from) // count for place in range(first, count, repeats)]
        chosen = replace(chosen_from.subset(places), mean=how.mean, std=how.std)
        cut = f":{count}" if repeats == 1 else f"{first}:{count}:{repeats}"
        fingerprint = f"{data} {split}[{cut}] {chosen.fingerprint}"
        drawn = in_memory(chosen)
        if augmentation is None:
            parts.append(_plain(drawn, how, match, batch_size, fingerprint))
        else:
            parts.append(_augmented(drawn, how, match, batch_size, first, fingerprint, augmentation))
    return parts


def open_for(
    model: nn.Module, data: str, root: Path | None = None, given: Given = None
) -> tuple[DataSet, Preprocessing]:
    """A data set, and the preprocessing of a model for it; a model that declares none gets the data's mean and std."""
    opened = open_data(data, root=root, image_size=input_size(model, given))
    return opened, preprocessing_of(model, given, assume={"mean": opened.mean, "std": opened.std})


def label_match(
    model: nn.Module, data: DataSet, how: Preprocessing, given: Mapping[str, Any] | Sequence[str] | None = None
) -> LabelMatch:
    """Which output of the model each class of the data is."""
    try:
        outputs = count_outputs(model, how.size)
    except VitlabError as error:
        return LabelMatch((), 0, why_not=str(error))
    return match_labels(data.classes, outputs, how.classes, given)


def count_outputs(model: nn.Module, size: tuple[int, int]) -> int:
    """How many logits a classifier gives, from one forward of a blank image."""
    inner = unwrap(model)
    try:
        with eval_mode(inner):
            output = inner(blank_images(inner, size)[:1])
    except Exception as error:  # whatever another library's forward raises
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise VitlabError(f"{type(inner).__name__} does not run on {size[0]}x{size[1]} images ({reason})") from error
    logits = getattr(output, "logits", output)
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2:
        raise VitlabError(f"{type(inner).__name__} does not give logits (B, classes), so labels have no meaning for it")
    return int(logits.shape[1])


def _count(asked: int | None, there: int, repeats: int, what: str) -> int:
    """How many images to use; more than there are is an error only where the user asked for them."""
    if asked is not None and asked > there:
        raise VitlabError(f"{asked} images were asked for, but {what} has {there}; ask for fewer")
    count = min(DEFAULT_IMAGES, there) if asked is None else asked
    if repeats > count:
        raise VitlabError(f"{count} images of {what} cannot be split into repeats={repeats} parts; ask for fewer")
    return count


def _plain(chosen: ImageSet, how: Preprocessing, match: LabelMatch, batch_size: int, fingerprint: str) -> Batches:
    outputs = match.outputs or None
    stream = ImageStream(chosen, how.transform(), how.mean, how.std, batch_size, outputs)
    return Batches(
        stream, how.mean, how.std, _names(chosen, how, match), fingerprint, how.record(), match.how, match.why_not
    )


def _augmented(
    chosen: ImageArray | ImageFiles,
    how: Preprocessing,
    match: LabelMatch,
    batch_size: int,
    seed: int,
    fingerprint: str,
    augmentation: Augmentation,
) -> Batches:
    """Each batch is an epoch of its own, so that the last, short batch is kept."""
    if isinstance(chosen, ImageFiles):
        chosen = replace(chosen, on_broken="replace")
    settings = replace(augmentation.settings, repeats=1, patches=False)
    items = []
    for start in range(0, len(chosen), batch_size):
        few = chosen.subset(range(start, min(start + batch_size, len(chosen))))
        workers = Workers(few, how.size, settings, batch_size=len(few), seed=seed, processes=0)
        (batch,) = workers.epoch(start)
        items.append((batch.images, _probabilities(batch, match, augmentation.smoothing)))
    record = {
        **how.record(),
        "augmentation": {"name": augmentation.name, **asdict(settings), "smoothing": augmentation.smoothing},
    }
    about = f"{fingerprint}, augmented by {augmentation.name}: batches of {batch_size}, seed {seed}"
    names = _names(chosen, how, match)
    return Batches(items, how.mean, how.std, names, about, record, match.how, match.why_not)


def _probabilities(batch: TrainingBatch, match: LabelMatch, smoothing: float) -> torch.Tensor:
    """(B, outputs) targets of mixed images, smoothed as torch's cross entropy does; NaN without labels."""
    if not match.outputs:
        return torch.full((len(batch.labels), 1), float("nan"))
    table = torch.tensor(match.outputs)
    own, other = (one_hot(table[each], match.of).float() for each in (batch.labels, batch.partners))
    mixed = torch.lerp(other, own, batch.weights.float()[:, None])
    return (1 - smoothing) * mixed + smoothing / match.of


def _names(chosen: ImageSet, how: Preprocessing, match: LabelMatch) -> Sequence[str]:
    """Names of what the targets count: the model's outputs, where they are known."""
    return how.classes if how.classes and match.outputs else chosen.classes
