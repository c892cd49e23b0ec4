"""Inputs with label maps for the commands: data expressions, ACDC by condition, and one-line errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitlab
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.data.acdc import CONDITIONS
from vitlab.inputs.pairs import check_source, conditions_of, pair_parts
from vitlab.runner import stress

VIT = "timm/vit_tiny_patch16_224(img_size=16, patch_size=4, embed_dim=24, depth=4, num_heads=3)"
MODEL = f"vitlab/upernet(backbone={VIT!r}, width=8, classes=19, size=(16, 24))"


@pytest.fixture
def acdc(tmp_path: Path) -> Path:
    """One validation and one training image for each condition, of 20×30 pixels."""
    random = np.random.default_rng(0)
    for condition in CONDITIONS:
        for split in ("train", "val"):
            folder = Path(condition, split, "GOPR1")
            for root, end, shape, high in (
                ("rgb_anon", "_rgb_anon.png", (20, 30, 3), 256),
                ("gt", "_gt_labelTrainIds.png", (20, 30), 19),
            ):
                path = tmp_path / "acdc" / root / folder
                path.mkdir(parents=True)
                Image.fromarray(random.integers(0, high, shape).astype(np.uint8)).save(path / f"frame{end}")
    return tmp_path


def test_parts_are_disjoint_and_cover_the_images() -> None:
    model = vitlab.load(MODEL, seed=0)
    parts = pair_parts(model, "scenes(train=1, test=5)", None, 2)
    assert [sum(len(images) for images, _ in part) for part in parts] == [3, 2]
    whole = torch.cat([masks for _, masks in pair_parts(model, "scenes(train=1, test=5)", None, 1)[0]])
    split = [torch.cat([masks for _, masks in part]) for part in parts]
    assert torch.equal(whole[0::2], split[0]) and torch.equal(whole[1::2], split[1])


def test_images_without_masks_have_the_input_size() -> None:
    model = vitlab.load(MODEL, seed=0)
    (part,) = pair_parts(model, "scenes(train=1, test=2, size=(32, 32))", None, 1, masks=False)
    ((images, labels),) = part
    assert images.shape == (2, 3, 16, 24) and labels.tolist() == [-1, -1] and "each pixel" in part.no_labels


def test_acdc_is_measured_by_condition_from_the_command(acdc: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="random weights"):
        (file,) = stress(
            [MODEL],
            ["segmentation_corruptions(suite='by_condition')"],
            tmp_path / "out",
            data="acdc",
            root=acdc,
            device="cpu",
            show=False,
        )
    found = Measurement.load(file)
    assert tuple(found.axes["condition"]) == CONDITIONS and found.values["class_iou"].shape == (4, 19)
    assert found.axes["class"][0] == "road" and len(found.values["example_image"]) == 4


def test_by_condition_needs_acdc() -> None:
    with pytest.raises(VitlabError, match="needs the data set acdc"):
        conditions_of(vitlab.load(MODEL), "camvid", None, None)


@pytest.mark.parametrize("data", ["camvid(test='val')", "scenes(labels='shape')", "cifar100"])
def test_both_kinds_of_data_are_accepted(data: str) -> None:
    check_source(data)


@pytest.mark.parametrize(("data", "message"), [("camvi", "no data set 'camvi'"), ("camvid(test='all')", "test='all'")])
def test_mistakes_in_data_are_named(data: str, message: str) -> None:
    with pytest.raises(VitlabError, match=message):
        check_source(data)


def test_too_many_images_are_an_error() -> None:
    with pytest.raises(VitlabError, match="has 2; request fewer"):
        pair_parts(vitlab.load(MODEL), "scenes(train=1, test=2)", 3, 1)
