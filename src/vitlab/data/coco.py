"""Reader for detection data in the COCO format: images, and JSON files with boxes, classes and masks of objects.

Lin et al., "Microsoft COCO: common objects in context", ECCV 2014. Categories are numbered from 1 in the order of their
ids. Objects without an area are dropped, and boxes that reach beyond the image are clipped, each with one warning that
counts them.

Shape legend: K objects of an image, h w pixels.
"""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from vitlab.core.errors import VitlabError
from vitlab.data.coco_annotations import Annotations, read_annotations
from vitlab.data.decoding import open_rgb
from vitlab.data.detection import Annotated, DetectionData, as_pixels, no_objects
from vitlab.data.file_fingerprints import files_stamp
from vitlab.data.folders import wrong_layout
from vitlab.data.images import UNLABELLED, DataSet, ImageFiles, from_splits
from vitlab.data.labelled import digest
from vitlab.data.run_lengths import decode_mask

__all__ = ["CocoImages", "coco_images", "open_coco"]

TREE = """\
  ROOT/annotations/instances_train2017.json
  ROOT/annotations/instances_val2017.json
  ROOT/train2017/<any name>.jpg
  ROOT/val2017/<any name>.jpg
  other splits: coco(train='NAME', test='NAME')"""

_NORMALISATION = (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)


@dataclass(frozen=True, eq=False)
class CocoImages:
    """The images of one annotation file with their objects, read on access.

    An image that is damaged causes one warning and is None.

    Args:
        folder: of the images.
        annotations: of the images; those of each image are stored as JSON text, which needs a tenth of the memory of
            Python objects.
    """

    folder: Path
    annotations: Annotations
    _warned: set[int] = field(default_factory=set, init=False)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the categories."""
        return self.annotations.classes

    def __len__(self) -> int:
        """Returns the number of images."""
        return len(self.annotations.images)

    def __getitem__(self, i: int) -> Annotated | None:
        """Returns image i with its objects; None if it cannot be read."""
        image = self.annotations.images[i]
        try:
            pixels = as_pixels(open_rgb(self.folder / image.file))
        except Exception as error:  # PIL raises many types of exceptions on damaged files
            if i not in self._warned:
                self._warned.add(i)
                reason = error.__cause__ or error
                warnings.warn(
                    f"cannot read the image {self.folder / image.file} ({reason}); it is skipped", stacklevel=2
                )
            return None
        if tuple(pixels.shape[1:]) != image.size:
            height, width = pixels.shape[1:]
            raise VitlabError(
                f"{self.folder / image.file} has {height}x{width} pixels, but its annotation says "
                f"{image.size[0]}x{image.size[1]}; correct the annotation or the image"
            )
        objects: list[dict[str, Any]] = json.loads(image.objects)
        if not objects:
            return no_objects(pixels)
        masks = np.stack([decode_mask(each["segmentation"], image.size) for each in objects])
        boxes = torch.tensor([each["bbox"] for each in objects], dtype=torch.float32)
        boxes[:, 2:] += boxes[:, :2]
        return Annotated(
            pixels,
            boxes,
            torch.tensor([each["label"] for each in objects]),
            torch.from_numpy(masks),
            torch.tensor([each["area"] for each in objects], dtype=torch.float32),
            torch.tensor([bool(each["iscrowd"]) for each in objects]),
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the file names and of all annotations."""
        parts = [f"{image.file} {image.size} ".encode() + image.objects for image in self.annotations.images]
        return digest(*parts, "\n".join(self.classes).encode())

    @property
    def stamp(self) -> str:
        """A digest of the sizes and times of the image files, which changes when one is replaced."""
        return files_stamp(self.folder / image.file for image in self.annotations.images)

    def subset(self, indices: list[int]) -> CocoImages:
        """Returns the images at these indices, in this order."""
        images = tuple(self.annotations.images[i] for i in indices)
        return replace(self, annotations=replace(self.annotations, images=images))


def open_coco(root: str | Path, train: str = "train2017", test: str = "val2017") -> DetectionData:
    """Open detection data in the COCO format.

    Args:
        root: contains the folders of images and `annotations`.
        train, test: names of the splits: the images are in `root/NAME`, the annotations in
            `root/annotations/instances_NAME.json`. Without a folder of the training split the set is for evaluation
            only. Training images without an object are omitted.
    """
    root = Path(root)
    if not root.is_dir():
        raise wrong_layout(f"no folder {root}", TREE)
    tested = _split(root, test)
    trained = _split(root, train) if (root / train).is_dir() else None
    if trained is not None:
        if trained.classes != tested.classes:
            raise VitlabError(
                f"{_file(root, train)} and {_file(root, test)} have different categories; expected the same in both"
            )
        trained = trained.subset([i for i, image in enumerate(trained.annotations.images) if image.trainable])
        if not len(trained):
            raise VitlabError(f"{_file(root, train)} has no image with an object to train on")
    return DetectionData(str(root), trained, tested, tested.classes, *_NORMALISATION)


def coco_images(data: DetectionData) -> DataSet:
    """Returns the images of a COCO set without their objects, for instruments that need no labels."""

    def files(images: Any, on_broken: Any) -> ImageFiles:
        names = np.array([os.fsencode(image.file) for image in images.annotations.images], dtype=np.bytes_)
        labels = torch.full((len(names),), UNLABELLED)
        return ImageFiles(images.folder, names, labels, (), *_NORMALISATION, on_broken)

    train = None if data.train is None else files(data.train, "replace")
    return from_splits(data.name, train, files(data.test, "mark"))


def _file(root: Path, split: str) -> Path:
    return root / "annotations" / f"instances_{split}.json"


def _split(root: Path, name: str) -> CocoImages:
    folder, file = root / name, _file(root, name)
    if not folder.is_dir():
        raise wrong_layout(f"no folder {folder}", TREE)
    if not file.is_file():
        raise VitlabError(f"no file {file}; expected the annotations of the images in {folder}, in the COCO format")
    found = CocoImages(folder, read_annotations(file))
    there = {os.path.join(at, each) for at, _, names in os.walk(folder) for each in names}
    missing = [image.file for image in found.annotations.images if os.path.join(folder, image.file) not in there]
    if missing:
        raise VitlabError(
            f"{folder} has no file {missing[0]!r} ({len(missing):,} of {len(found):,} images of {file.name} are "
            "missing); add the images, or remove them from the annotations"
        )
    return found
