"""The instrument: values against the metric, pictures against the images, and an error for repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitlab
from cases import redraw
from vitlab import runner
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.data.detection_sets import open_detection
from vitlab.inputs.detection import detection_parts
from vitlab.instruments.shared.average_precision import detect, precision_curves
from vitlab.instruments.shared.detection_examples import SCORE, SIDE, Examples

MODEL = (
    "vitlab/mask_rcnn(backbone='timm/vit_tiny_patch16_224(img_size=64, patch_size=8, embed_dim=24, depth=4,"
    " num_heads=3)', classes=5, width=16, head=32, anchor=16, proposals=40, score=0.01, size=(64, 64))"
)
DATA = "scenes(train=1, test=8, labels='shape')"


@pytest.fixture(scope="module")
def model() -> Any:
    return redraw(vitlab.load(MODEL, seed=0)).eval()


@pytest.mark.filterwarnings("ignore:.*random weights")
def test_values_are_means_of_the_curves(model: Any, tmp_path: Path) -> None:
    (batches,) = detection_parts(model, DATA, None, 1)
    found = vitlab.measure("average_precision", model, batches)
    detections = detect(model, batches)
    for kind in ("box", "mask"):
        curves = precision_curves(detections, 5, kind)  # type: ignore[arg-type]
        assert curves.shape == (10, 101, 5)
        assert found.values[f"{kind}_ap"] == np.nanmean(curves)
        assert found.values[f"{kind}_ap75"] == np.nanmean(curves[5])
        np.testing.assert_array_equal(found.values[f"{kind}_ap_by_threshold"], np.nanmean(curves, axis=(1, 2)))
        np.testing.assert_array_equal(found.values[f"{kind}_ap50_by_class"], curves[0].mean(0))
    truth = open_detection(DATA, image_size=64).test
    labels = torch.cat([truth[i].labels for i in range(8)])  # type: ignore[union-attr]
    assert found.values["objects"].tolist() == torch.bincount(labels - 1, minlength=5).tolist()
    found.save(tmp_path / "kept")
    assert Measurement.load(tmp_path / "kept") == found


def test_repeats_are_refused(tmp_path: Path) -> None:
    """The mean of AP over parts of the images is not AP."""
    with pytest.raises(VitlabError, match="invalid repeats=2 with average_precision, which is not a mean over images"):
        list(runner.measure([MODEL], ["attention_entropy", "average_precision"], tmp_path, data=DATA, repeats=2))
    assert not list(tmp_path.iterdir())


def test_pictures_hold_the_objects() -> None:
    image = open_detection("scenes(train=1, test=1)", image_size=(48, 96)).test[0]
    assert image is not None
    scores = torch.linspace(0.9, 0.1, len(image.labels))
    examples = Examples(1)
    for _ in range(2):  # the second is one too many
        examples.add(
            image, {"boxes": image.boxes, "labels": image.labels, "scores": scores, "masks": image.masks.bool()}
        )
    values = examples.values()
    assert values["example_image"].shape == (1, SIDE, SIDE, 3) and values["example_size"].tolist() == [[96, 192]]
    assert (values["example_image"][0, 96:] == 255).all()
    count = len(image.labels)
    np.testing.assert_allclose(values["example_true_boxes"][0, :count], 2 * image.boxes)
    assert np.isnan(values["example_true_boxes"][0, count:]).all()
    assert values["example_true_labels"][0].tolist() == image.labels.tolist() + [0] * (24 - count)
    kept = int((scores >= SCORE).sum())
    assert (values["example_predicted_labels"][0] > 0).sum() == kept
    masks = values["example_true_masks"][0][:96:2, ::2]
    for k in range(count):
        np.testing.assert_array_equal(masks == k + 1, image.masks[k].numpy() > 0)
    assert set(examples.dims()) == set(values)


def test_the_number_of_images_is_checked(model: Any) -> None:
    with pytest.raises(ValueError, match="has 8; request fewer"):
        detection_parts(model, DATA, 9, 1)
    with pytest.raises(ValueError, match="give at most 8 parts"):
        detection_parts(model, DATA, None, 9)
