"""Batches of detection data, for instruments that measure detectors."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from vitlab.core.batches import Batches
from vitlab.core.recipe import Detection
from vitlab.data.detection_sets import open_detection
from vitlab.data.detection_stream import DetectionStream
from vitlab.inputs.parts import count_images, fingerprint_of, spread
from vitlab.preprocessing import input_size, preprocessing_of
from vitlab.preprocessing.resolution import Given


def detection_parts(
    model: nn.Module,
    data: str,
    images: int | None,
    repeats: int,
    root: Path | None = None,
    *,
    batch_size: int = 8,
    preprocessing: Given = None,
) -> list[Batches]:
    """Test images with their objects, split into disjoint parts: image i goes to part i mod `repeats`.

    Images are resized as in the evaluation of a training run (`tasks/detection.py`).

    Args:
        model: a detector; decides size and normalisation.
        data: an expression of `data.detection_sets`.
        images: number of images, at even distances over the set; default all.
        repeats: number of parts.
        root: the folder that holds the data sets.
        batch_size: images of a batch.
        preprocessing: fields that replace the model's own.
    """
    size = input_size(model, preprocessing)
    opened = open_detection(data, root=root, image_size=size)
    how = preprocessing_of(model, preprocessing, assume={"mean": opened.mean, "std": opened.std})
    available = len(opened.test)
    count = count_images(images, available, repeats, f"the test set of {data!r}")
    side, longest = min(size), min(max(size), Detection().longest)
    parts = []
    for first in range(repeats):
        chosen = opened.test.subset(spread(available, count, first, repeats))
        stream = DetectionStream(chosen, side, longest, how.mean, how.std, batch_size)
        fingerprint = fingerprint_of(data, "test", chosen, available, count, first, repeats)
        record = {"mean": list(how.mean), "std": list(how.std), "source": how.source, "side": side, "longest": longest}
        parts.append(Batches(stream, how.mean, how.std, opened.classes, fingerprint, record, count=len(chosen)))
    return parts
