"""Files of ACDC in the layout of its archives, with known pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitlab.core.errors import VitlabError
from vitlab.data.acdc import CLASSES, CONDITIONS, labelled_paths
from vitlab.data.segmentation_sets import open_pairs


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
def test_images_and_label_maps_are_in_natural_order(tmp_path: Path, folders: tuple[str, str]) -> None:
    _write(tmp_path / "acdc", *folders, splits=("train", "val"))
    for c, condition in enumerate(CONDITIONS):
        data = open_pairs(f"acdc(condition={condition!r})", root=tmp_path)
        assert len(data.train) == len(data.test) == 2 and data.classes == CLASSES
        for i in range(2):  # frame 9 before frame 10
            pixels, labels = data.test[i]
            assert pixels.shape == (3, 4, 6) and bool((pixels == 40 * i + c).all())
            assert bool((labels[:, :3] == 255).all()) and bool((labels[:, 3:] == i).all())
    assert len(open_pairs("acdc", root=tmp_path).test) == 2 * len(CONDITIONS)


def test_classes_are_those_of_cityscapes() -> None:
    assert len(CLASSES) == 19 and CLASSES.index("sky") == 10 and CLASSES.index("bicycle") == 18


def test_missing_files_are_one_line_errors(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match="folder rgb_anon of ACDC not found in") as caught:
        labelled_paths(tmp_path, "val")
    assert "ROOT/rgb_anon/{fog,night,rain,snow}" in str(caught.value)
    _write(tmp_path)
    with pytest.raises(VitlabError, match="contains no images of ACDC"):
        labelled_paths(tmp_path, "train")
    next((tmp_path / "gt/fog/val").rglob("*.png")).unlink()
    with pytest.raises(VitlabError, match="1 of 2 images have no labels"):
        labelled_paths(tmp_path, "val")
