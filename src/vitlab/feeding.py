"""Images of a data set as a model eats them: its size, its normalisation, plain or augmented, whole or in parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from torch import nn

from vitlab.adapters import describe
from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError, unknown
from vitlab.data.catalogue import open_data
from vitlab.data.images import ImageArray, ImageFiles, ImageSet, in_memory
from vitlab.data.resident import Resident
from vitlab.data.workers import Workers
from vitlab.recipes.deit_imagenet import deit_imagenet

Split = Literal["test", "train"]


def batches_for(
    model: nn.Module,
    data: str,
    images: int,
    root: Path | None = None,
    batch_size: int = 16,
    *,
    split: Split = "test",
    augmented: bool = False,
) -> Batches:
    """Test images of a data set, at the model's own size and in its own normalisation.

    They are taken at even distances: the first of many a set are all of one class.

    Args:
        model: its pretrained configuration says mean and std; a model without one gets those of the data.
        data: a data expression.
        images: how many.
        root: the folder that holds the data sets.
        batch_size: of the batches.
        split: `test`, or `train` for training images.
        augmented: show them under DeiT's augmentation, mixed with others of their batch; targets are then (labels,
            partners, share).
    """
    return parts_for(model, data, images, 1, root, batch_size, split=split, augmented=augmented)[0]


def parts_for(
    model: nn.Module,
    data: str,
    images: int,
    repeats: int,
    root: Path | None = None,
    batch_size: int = 16,
    *,
    split: Split = "test",
    augmented: bool = False,
) -> list[Batches]:
    """The images of `batches_for`, dealt out like cards into parts that have no image in common."""
    if split not in get_args(Split):
        raise unknown("split", split, get_args(Split))
    if images < 1:
        raise VitlabError(f"images={images}: at least one image is needed")
    if not isinstance(batch_size, int) or batch_size < 1:
        raise VitlabError(f"batch_size={batch_size!r}: a batch has at least one image")
    size = describe(model).input_size
    opened = open_data(data, root=root, image_size=size)
    chosen_from = opened.test if split == "test" else opened.train
    if chosen_from is None:
        raise VitlabError(f"{data!r} has no training images; give data that has a training set")
    if len(chosen_from) < images:
        raise VitlabError(
            f"{images} images were asked for, but the {split} set of {data!r} has {len(chosen_from)}; ask for fewer"
        )
    parts = []
    for first in range(repeats):
        places = [place * len(chosen_from) // images for place in range(first, images, repeats)]
        chosen = _normalised(model, chosen_from.subset(places))
        cut = f":{images}" if repeats == 1 else f"{first}:{images}:{repeats}"
        fingerprint = f"{data} {split}[{cut}] {chosen.fingerprint}"
        drawn = in_memory(chosen)
        if augmented:
            parts.append(_augmented(drawn, size, batch_size, first, fingerprint))
        else:
            parts.append(_batches(drawn, size, batch_size, fingerprint))
    return parts


def _augmented(
    chosen: ImageArray | ImageFiles, size: tuple[int, int], batch_size: int, seed: int, fingerprint: str
) -> Batches:
    """Batch by batch, each an epoch of its own: the last, short one is not lost."""
    if isinstance(chosen, ImageFiles):
        chosen = replace(chosen, on_broken="replace")
    settings = replace(deit_imagenet().augment, repeats=1)
    items = []
    for start in range(0, len(chosen), batch_size):
        few = chosen.subset(range(start, min(start + batch_size, len(chosen))))
        feed = Workers(few, few, size, settings, batch_size=len(few), seed=seed, processes=0)
        (batch,) = feed.epoch(start)
        items.append((batch.images, (batch.labels, batch.partners, batch.weights)))
    about = f"{fingerprint}, augmented: {settings}, batches of {batch_size}, seed {seed}"
    return Batches(items, chosen.mean, chosen.std, chosen.classes, about)


def _batches(chosen: ImageArray | ImageFiles, size: tuple[int, int], batch_size: int, fingerprint: str) -> Batches:
    if isinstance(chosen, ImageArray) and tuple(chosen.images.shape[-2:]) == size:
        feed = Resident(chosen.images, chosen.labels, chosen.mean, chosen.std, batch_size=batch_size)
        items = list(feed.evaluation())
    else:
        items = list(Workers(chosen, chosen, size, batch_size=batch_size, processes=0).evaluation())
    return Batches(items, chosen.mean, chosen.std, chosen.classes, fingerprint)


def _normalised(model: nn.Module, images: ImageSet) -> ImageSet:
    """The images with the mean and std that the model says it was made for (timm's configuration, or our own files)."""
    config = getattr(model, "pretrained_cfg", None) or {}
    if "mean" not in config or "std" not in config:
        return images
    return replace(images, mean=tuple(config["mean"]), std=tuple(config["std"]))
