"""Locations and folder names of the published sets; the tests of the stress tests cover the rest."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.data import ImageNetInfo

from cases.published import fill, paint
from vitlab.core.errors import VitlabError
from vitlab.data.images import ImageArray
from vitlab.data.robustness_sets import (
    labels_200,
    labels_1000,
    labels_by_number,
    locate,
    missing_classes,
    numbers,
    open_classes,
    open_validation,
    spread,
    under_group,
)


def test_labels_are_those_of_imagenet() -> None:
    info = ImageNetInfo("imagenet-1k")
    assert all(info.index_to_label_name(label) == name for name, label in labels_1000().items())
    for which in ("a", "r"):
        assert all(info.index_to_label_name(label) == name for name, label in labels_200(which).items())
    assert labels_by_number()["10"] == 10 and len(labels_by_number()) == 1000


def test_the_named_folder_comes_before_the_root(tmp_path) -> None:
    """A folder of data sets may look like one of them."""
    for folder in (tmp_path, tmp_path / "Set"):
        (folder / "fog").mkdir(parents=True)

    def holds(place) -> bool:
        return (place / "fog").is_dir()

    assert locate(tmp_path, ("set", "Set"), holds, "tree") == tmp_path / "Set"
    assert locate(str(tmp_path / "Set"), ("set", "Set"), holds, "tree") == tmp_path / "Set"
    with pytest.raises(VitlabError, match="no set in .*; expected:\ntree"):
        locate(tmp_path / "Set" / "fog", ("set", "Set"), holds, "tree")


def test_groups(tmp_path) -> None:
    (tmp_path / "weather" / "fog").mkdir(parents=True)
    assert under_group(tmp_path, "fog") == tmp_path / "weather" / "fog" and under_group(tmp_path, "snow") is None
    (tmp_path / "fog").mkdir()
    assert under_group(tmp_path, "fog") == tmp_path / "fog"


def test_classes_and_those_that_are_missing(tmp_path) -> None:
    labels = {"b": 5, "a": 7, "c": 900}
    fill(tmp_path, {"a": [1, 2], "b": [3]})
    images = open_classes(tmp_path, labels, "tree")
    assert images.labels.tolist() == [5, 7, 7] and len(images.classes) == 1000 and images.on_broken == "mark"
    assert missing_classes(images, labels) == ["c"]
    with pytest.raises(VitlabError, match=r"no class folders \(a, b\); expected:\ntree"):
        open_classes(tmp_path, {"z": 1}, "tree")


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 40), st.data())
def test_spread_selects_from_all_classes(count, data) -> None:
    taken = data.draw(st.integers(2, count))
    images = ImageArray(torch.zeros(count, 3, 1, 1, dtype=torch.uint8), torch.arange(count), ("x",) * count)
    rows = spread(images, taken).labels
    assert len(rows) == taken and rows[0] == 0 and len(set(rows.tolist())) == taken
    gaps = rows.diff()
    assert int(gaps.max() - gaps.min()) <= 1


def test_numbers_of_validation_images(tmp_path) -> None:
    paint(tmp_path / "ILSVRC2012_val_00000010.JPEG", 0)
    paint(tmp_path / "ILSVRC2012_val_00000009.JPEG", 0)
    images, labelled = open_validation(tmp_path, "tree")
    assert numbers(images, "tree") == [9, 10] and not labelled
    paint(tmp_path / "ILSVRC2012_val_00050001.JPEG", 0)
    with pytest.raises(VitlabError, match="00050001.JPEG does not have the name"):
        numbers(open_validation(tmp_path, "tree")[0], "tree")
    (tmp_path / "empty").mkdir()
    with pytest.raises(VitlabError, match="contains no images"):
        open_validation(tmp_path / "empty", "tree")
