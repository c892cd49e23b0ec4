"""Average precision of detections, by faster-coco-eval.

A prediction is correct at a threshold t if its intersection over union with an object of its class is at least t, and
no prediction of a higher score has that object. AP is the mean precision at the recalls 0, 0.01, …, 1, over classes,
and over the thresholds 0.5, 0.55, …, 0.95 (COCO; Lin et al. 2014). Crowds count neither way.

Shape legend: T thresholds, R recalls, C classes, n predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vitlab.assemblies.mask_rcnn import in_image
from vitlab.core.errors import VitlabError
from vitlab.data.detection import Annotated
from vitlab.data.run_lengths import coco_module, encode_mask

THRESHOLDS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
RECALLS = tuple(round(0.01 * step, 2) for step in range(101))

Kind = Literal["box", "mask"]


@dataclass
class Detections:
    """Objects and predictions of images, in the COCO format, without ids of annotations.

    Args:
        images: id, height and width.
        objects: the annotations.
        predictions: the predicted objects.
    """

    images: list[dict[str, Any]] = field(default_factory=list)
    objects: list[dict[str, Any]] = field(default_factory=list)
    predictions: list[dict[str, Any]] = field(default_factory=list)

    def add(self, index: int, image: Annotated, prediction: Mapping[str, Tensor]) -> None:
        """Add an image.

        Args:
            index: number of the image, from 0.
            image: with its objects.
            prediction: boxes (n, 4), labels (n,), scores (n,) and masks (n, h, w), in pixels of this image.
        """
        number = index + 1
        self.images.append({"id": number, "height": image.size[0], "width": image.size[1]})
        for box, label, mask, area, crowd in zip(
            image.boxes.tolist(), image.labels.tolist(), image.masks, image.areas.tolist(), image.crowd, strict=True
        ):
            entry = _entry(number, label, box, mask)
            self.objects.append({**entry, "area": area, "iscrowd": int(crowd)})
        columns = (prediction[name].detach().cpu() for name in ("boxes", "labels", "scores", "masks"))
        boxes, labels, scores, masks = columns
        for box, label, score, mask in zip(boxes.tolist(), labels.tolist(), scores.tolist(), masks, strict=True):
            self.predictions.append({**_entry(number, label, box, mask), "score": score})

    def extend(self, other: Detections) -> None:
        """Add the images of another set, such as those of another rank."""
        self.images += other.images
        self.objects += other.objects
        self.predictions += other.predictions


@torch.no_grad()
def detect(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor, Sequence[tuple[int, Annotated]]]],
    context: AbstractContextManager[Any] | None = None,
    keep: Callable[[Annotated, Mapping[str, Tensor]], None] | None = None,
) -> Detections:
    """Run a detector, in evaluation mode, on the batches of a `DetectionStream`.

    Args:
        model: a Mask R-CNN.
        batches: images, their sizes without padding, and the original images with their numbers.
        context: a context for each forward, such as autocast.
        keep: called with each original image and its prediction.
    """
    found, device = Detections(), next(model.parameters()).device
    for images, sizes, originals in batches:
        with context or nullcontext():
            predictions = model(images.to(device), sizes=sizes)
        for size, (index, image), prediction in zip(sizes.tolist(), originals, predictions, strict=True):
            seen = in_image(prediction, size, image.size)
            found.add(index, image, seen)
            if keep is not None:
                keep(image, seen)
    return found


def precision_curves(found: Detections, classes: int, kind: Kind) -> NDArray[np.float64]:
    """Returns the precision at each threshold, recall and class, (T, R, C); NaN for classes without an object.

    Args:
        found: objects and predictions; labels are 1 to C.
        classes: C.
        kind: overlap of boxes, or of masks.
    """
    if not any(not entry["iscrowd"] for entry in found.objects):
        raise VitlabError("the test images have no objects, so that there is no average precision; use other data")
    library, evaluation = coco_module("core.coco").COCO, coco_module("core.faster_eval_api").COCOeval_faster
    truth = library()
    truth.dataset = {
        "info": {},
        "images": sorted(found.images, key=lambda image: int(image["id"])),
        "annotations": [{**entry, "id": number} for number, entry in enumerate(found.objects, start=1)],
        "categories": [{"id": label, "name": str(label)} for label in range(1, classes + 1)],
    }
    truth.createIndex()
    drop = "bbox" if kind == "mask" else "segmentation"  # the other one would decide the area of a prediction
    given = [{name: value for name, value in entry.items() if name != drop} for entry in found.predictions]
    measured = evaluation(truth, truth.loadRes(given), "segm" if kind == "mask" else "bbox", print_function=_silent)
    measured.params.iouThrs = np.array(THRESHOLDS)
    measured.params.recThrs = np.array(RECALLS)
    measured.evaluate()
    measured.accumulate()
    curves = np.asarray(measured.eval["precision"], dtype=np.float64)[:, :, :, 0, -1]  # all areas, most predictions
    return np.where(curves < 0, np.nan, curves)


def summary(curves: NDArray[np.float64], kind: Kind) -> dict[str, float]:
    """Returns AP and AP at the threshold 0.5 by name.

    >>> summary(np.ones((10, 101, 2)), "box")
    {'box_ap': 1.0, 'box_ap50': 1.0}
    """
    return {f"{kind}_ap": float(np.nanmean(curves)), f"{kind}_ap50": float(np.nanmean(curves[0]))}


def _entry(number: int, label: int, box: Sequence[float], mask: Tensor) -> dict[str, Any]:
    x0, y0, x1, y1 = box
    runs = encode_mask(mask.to(torch.uint8).numpy())
    return {"image_id": number, "category_id": label, "bbox": [x0, y0, x1 - x0, y1 - y0], "segmentation": runs}


def _silent(*_: object) -> None:
    """Print nothing."""
