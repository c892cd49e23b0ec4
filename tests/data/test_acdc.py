"""ACDC as its archives unpack, written here with pictures of known pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitlab
from vitlab.data.acdc import CLASSES, CONDITIONS, open_acdc

HALF = (0.5, 0.5, 0.5)


def _write(root: Path, images: str = "rgb_anon", masks: str = "gt", splits: tuple[str, ...] = ("val",)) -> Path:
    """Two frames of each condition; frame i is grey 40 i + condition, and its right half is road, the rest ignored."""
    for c, condition in enumerate(CONDITIONS):
        for split in splits:
            for i, frame in enumerate(("GOPR0122_frame_9", "GOPR0122_frame_10")):
                below = f"{condition}/{split}/GOPR0122/{frame}"
                image, mask = root / images / f"{below}_rgb_anon.png", root / masks / f"{below}_gt_labelTrainIds.png"
                labels = np.full((4, 6), 255, np.uint8)
                labels[:, 3:] = i
                for path, pixels in ((image, np.full((4, 6, 3), 40 * i + c, np.uint8)), (mask, labels)):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(pixels).save(path)
    return root


@pytest.mark.parametrize("folders", [("rgb_anon", "gt"), ("rgb_anon_trainvaltest/rgb_anon", "gt_trainval/gt")])
def test_frames_come_with_their_masks_in_natural_order(tmp_path, folders) -> None:
    found = open_acdc(_write(tmp_path, *folders), mean=HALF, std=HALF)
    assert list(found) == ["fog", "night", "rain", "snow"]
    for c, batches in enumerate(found.values()):
        assert len(batches) == 2 and batches.classes == CLASSES and batches.mean == HALF
        for i, (images, masks) in enumerate(batches):  # frame 9 before frame 10
            levels = (images * 0.5 + 0.5) * 255
            assert images.shape == (1, 3, 4, 6) and levels.sub(40 * i + c).abs().max() < 1e-3
            assert (masks[:, :, :3] == 255).all() and (masks[:, :, 3:] == i).all()
        assert len(list(batches)) == 2, "they can be walked again"
    assert len({batches.fingerprint for batches in found.values()}) == 4


def test_images_are_resized_and_masks_are_not(tmp_path) -> None:
    found = open_acdc(_write(tmp_path, splits=("train",)), "train", size=(8, 10), batch_size=2)
    (images, masks), *rest = found["rain"]
    assert images.shape == (2, 3, 8, 10) and masks.shape == (2, 4, 6) and not rest


def test_classes_are_those_of_cityscapes() -> None:
    assert len(CLASSES) == 19 and CLASSES.index("sky") == 10 and CLASSES.index("bicycle") == 18


def test_a_model_by_condition(tmp_path) -> None:
    """A model that always says road is right in the first frame of each condition, and wrong in the second."""

    class Road(torch.nn.Module):
        def forward(self, images):
            return torch.eye(19)[0].view(1, 19, 1, 1).expand(len(images), 19, 2, 3)

    found = vitlab.stress("segmentation_corruptions", Road(), open_acdc(_write(tmp_path)), suite="by_condition")
    assert found.axes["condition"] == CONDITIONS and found.axes["class"] == CLASSES
    np.testing.assert_array_equal(found.values["class_iou"][:, :2], [[0.5, 0]] * 4)
    assert found.values["pixel_accuracy"].tolist() == [0.5] * 4 and found.values["pooled_miou"] == 0.25


def test_mistakes(tmp_path) -> None:
    def refuse(message: str, **settings) -> str:
        with pytest.raises(vitlab.VitlabError, match=message) as caught:
            for batches in open_acdc(tmp_path, **settings).values():
                list(batches)
        return str(caught.value)

    assert "ROOT/rgb_anon/{fog,night,rain,snow}" in refuse("folder rgb_anon of ACDC not found in")
    _write(tmp_path)
    refuse("not public", split="test")
    refuse("did you mean 'val'", split="vall")
    refuse("batch_size=0", batch_size=0)
    assert "_gt_labelTrainIds.png" in refuse("train contains no images of ACDC", split="train")
    mask = tmp_path / "gt/snow/val/GOPR0122/GOPR0122_frame_10_gt_labelTrainIds.png"
    Image.fromarray(np.zeros((4, 5), np.uint8)).save(mask)
    refuse(r"uint8 \(4, 5\); expected 8-bit training labels.*\(4, 6\)")
    mask.write_bytes(b"no picture")
    refuse("cannot read .*unpack it again")
    mask.unlink()
    refuse("1 of 2 images have no labels, for example .*snow/val")
