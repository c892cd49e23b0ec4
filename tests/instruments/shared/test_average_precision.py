"""Average precision against pycocotools on random predictions, and against closed forms."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from vitlab.core.errors import VitlabError
from vitlab.data.detection import Annotated
from vitlab.data.detection_sets import open_detection
from vitlab.instruments.shared.average_precision import Detections, Kind, precision_curves, summary

CLASSES = 5


def images(count: int = 12) -> list[Annotated]:
    data = open_detection(f"scenes(train=1, test={count}, labels='shape')", image_size=48).test
    found = [data[i] for i in range(count)]
    return [image for image in found if image is not None]


def moved(image: Annotated, random: np.random.Generator) -> dict[str, torch.Tensor]:
    """Predictions near the objects, some with a wrong class, and some that are nowhere."""
    boxes, labels, scores, masks = [], [], [], []
    for _ in range(3):
        for k in range(len(image.labels)):
            dy, dx = (int(each) for each in random.integers(-3, 4, size=2))
            boxes.append(image.boxes[k] + torch.tensor([dx, dy, dx, dy]))
            masks.append(image.masks[k].roll((dy, dx), (0, 1)))
            wrong = random.random() < 0.3
            labels.append(int(random.integers(1, CLASSES + 1)) if wrong else int(image.labels[k]))
            scores.append(float(random.random()))
    order = np.argsort(scores)[::-1].copy()
    return {
        "boxes": torch.stack(boxes)[order],
        "labels": torch.tensor(labels)[order],
        "scores": torch.tensor(scores)[order],
        "masks": torch.stack(masks)[order].bool(),
    }


def by_pycocotools(found: Detections, kind: str) -> Any:
    found = copy.deepcopy(found)
    truth = COCO()
    truth.dataset = {
        "info": {},
        "images": found.images,
        "annotations": [{**entry, "id": number} for number, entry in enumerate(found.objects, start=1)],
        "categories": [{"id": label} for label in range(1, CLASSES + 1)],
    }
    truth.createIndex()
    given = [
        {k: v for k, v in entry.items() if k != ("bbox" if kind == "segm" else "segmentation")}
        for entry in found.predictions
    ]
    evaluation = COCOeval(truth, truth.loadRes(given), kind)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return evaluation


@pytest.mark.parametrize(("kind", "name"), [("box", "bbox"), ("mask", "segm")])
@pytest.mark.parametrize("seed", [0, 1])
def test_random_predictions_as_pycocotools(kind: Kind, name: str, seed: int) -> None:
    random, found = np.random.default_rng(seed), Detections()
    for i, image in enumerate(images()):
        if i == 4:  # a crowd
            image = Annotated(
                image.pixels, image.boxes, image.labels, image.masks, image.areas, torch.ones(len(image.labels)).bool()
            )
        found.add(i, image, moved(image, random))
    curves = precision_curves(found, CLASSES, kind)
    expected = by_pycocotools(found, name)
    precision = expected.eval["precision"][:, :, :, 0, 2]
    np.testing.assert_allclose(np.where(np.isnan(curves), -1, curves), precision, atol=1e-12)
    values = summary(curves, kind)
    assert values[f"{kind}_ap"] == pytest.approx(expected.stats[0], abs=1e-12)
    assert values[f"{kind}_ap50"] == pytest.approx(expected.stats[1], abs=1e-12)
    assert 0.05 < values[f"{kind}_ap"] < 0.95  # neither closed form


def exact(image: Annotated, scores: float = 1.0) -> dict[str, torch.Tensor]:
    return {
        "boxes": image.boxes,
        "labels": image.labels,
        "scores": torch.full((len(image.labels),), scores),
        "masks": image.masks.bool(),
    }


@pytest.mark.parametrize("kind", ["box", "mask"])
def test_perfect_predictions_are_1_and_none_are_0(kind: Kind) -> None:
    perfect, nothing = Detections(), Detections()
    for i, image in enumerate(images(6)):
        perfect.add(i, image, exact(image))
        nothing.add(i, image, {name: value[:0] for name, value in exact(image).items()})
    assert summary(precision_curves(perfect, CLASSES, kind), kind) == {f"{kind}_ap": 1.0, f"{kind}_ap50": 1.0}
    assert summary(precision_curves(nothing, CLASSES, kind), kind) == {f"{kind}_ap": 0.0, f"{kind}_ap50": 0.0}


def test_an_overlap_of_two_thirds_counts_up_to_its_threshold() -> None:
    """IoU of 8 / 12: correct at 0.5, 0.55, 0.6 and 0.65 of the ten thresholds."""
    mask = torch.zeros(1, 16, 16, dtype=torch.uint8)
    mask[0, 0:4, 0:3] = 1
    image = Annotated(
        torch.zeros(3, 16, 16, dtype=torch.uint8),
        torch.tensor([[0.0, 0, 3, 4]]),
        torch.tensor([1]),
        mask,
        torch.tensor([12.0]),
        torch.tensor([False]),
    )
    less = torch.zeros(1, 16, 16, dtype=torch.bool)
    less[0, 0:4, 0:2] = True
    found = Detections()
    found.add(
        0,
        image,
        {
            "boxes": torch.tensor([[0.0, 0, 2, 4]]),
            "labels": torch.tensor([1]),
            "scores": torch.tensor([0.9]),
            "masks": less,
        },
    )
    for kind in ("box", "mask"):
        values = summary(precision_curves(found, 1, kind), kind)
        assert values == {f"{kind}_ap": pytest.approx(0.4), f"{kind}_ap50": 1.0}


def test_ranks_are_added_in_any_order() -> None:
    random = np.random.default_rng(3)
    whole, odd, even = Detections(), Detections(), Detections()
    for i, image in enumerate(images(8)):
        prediction = moved(image, random)
        whole.add(i, image, prediction)
        (odd if i % 2 else even).add(i, image, prediction)
    odd.extend(even)
    np.testing.assert_array_equal(precision_curves(whole, CLASSES, "box"), precision_curves(odd, CLASSES, "box"))


def test_no_objects_is_an_error() -> None:
    with pytest.raises(VitlabError, match="the test images have no objects"):
        precision_curves(Detections(), CLASSES, "box")
