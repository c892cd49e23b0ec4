"""Batches of a data set with label maps, for models of dense prediction.

Shape legend: B batch, h w pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_call
from vitlab.data.acdc import CONDITIONS
from vitlab.data.catalogue import check_data, data_sets
from vitlab.data.images import UNLABELLED
from vitlab.data.question_catalogue import check_questions, question_sets
from vitlab.data.segmentation_feed import PairStream
from vitlab.data.segmentation_sets import check_pairs, open_pairs, pair_sets
from vitlab.inputs.parts import count_images, fingerprint_of, spread
from vitlab.preprocessing import input_size, preprocessing_of
from vitlab.preprocessing.resolution import Given

_WHY_NO_LABELS = "the data has a label for each pixel, not for each image; use data with class labels"


def check_source(data: str) -> None:
    """Raise if a data expression names neither a set of labelled images nor one with label maps or questions."""
    name = data.partition("(")[0].strip()
    if name in question_sets():
        check_questions(data)
        return
    try:
        check_data(data)
    except VitlabError:
        if name not in pair_sets():
            raise
        check_pairs(data)


def only_pairs(data: str) -> bool:
    """Whether a data expression names a set that has label maps only.

    >>> only_pairs("camvid(test='val')"), only_pairs("cifar100"), only_pairs("/photos")
    (True, False, False)
    """
    name = data.partition("(")[0].strip()
    return name in pair_sets() and name not in data_sets()


def pair_parts(
    model: nn.Module,
    data: str,
    images: int | None,
    repeats: int,
    root: Path | None = None,
    *,
    masks: bool = True,
    batch_size: int = 8,
    preprocessing: Given = None,
) -> list[Batches]:
    """Test images with label maps, whole, split into disjoint parts: image i goes to part i mod `repeats`.

    Args:
        model: decides the normalisation.
        data: an expression of `data.segmentation_sets`.
        images: number of images, at even distances over the set; default all.
        repeats: number of parts.
        root: the folder that holds the data sets.
        masks: whether batches yield (images, label maps); else images have the input size of the model and no labels.
        batch_size: most images of a batch.
        preprocessing: fields that replace the model's own.
    """
    size = input_size(model, preprocessing)
    opened = open_pairs(data, root=root, image_size=size)
    how = preprocessing_of(model, preprocessing, assume={"mean": opened.mean, "std": opened.std})
    available = len(opened.test)
    count = count_images(images, available, repeats, f"the test set of {data!r}")
    parts = []
    for first in range(repeats):
        chosen = opened.test.subset(spread(available, count, first, repeats))
        stream = PairStream(chosen, how.mean, how.std, batch_size)
        fingerprint = fingerprint_of(data, "test", chosen, available, count, first, repeats)
        names, why, items = (opened.classes, "", stream) if masks else ((), _WHY_NO_LABELS, _Resized(stream, size))
        parts.append(
            Batches(items, how.mean, how.std, names, fingerprint, how.record(), no_labels=why, count=len(chosen))
        )
    return parts


def conditions_of(
    model: nn.Module, data: str, images: int | None, root: Path | None, preprocessing: Given = None
) -> dict[str, Batches]:
    """The validation images of ACDC by condition, for `segmentation_corruptions(suite='by_condition')`."""
    name, settings = parse_call(data)
    if name != "acdc" or settings:
        raise VitlabError(f"suite='by_condition' needs the data set acdc without settings; got {data!r}")
    return {
        condition: pair_parts(
            model, f"acdc(condition={condition!r})", images, 1, root, batch_size=1, preprocessing=preprocessing
        )[0]
        for condition in CONDITIONS
    }


@dataclass(frozen=True, eq=False)
class _Resized:
    """Images of a stream at one size, without labels."""

    stream: PairStream
    size: tuple[int, int]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, _ in self.stream:
            if tuple(images.shape[-2:]) != self.size:
                images = F.interpolate(images, self.size, mode="bilinear", antialias=True, align_corners=False)
            yield images, torch.full((len(images),), UNLABELLED)
