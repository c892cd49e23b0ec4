"""ImageNet-1K: tiny trees in its layout, and the real images where they are."""

import os
from pathlib import Path

import pytest
from PIL import Image

from vitlab.core.errors import VitlabError
from vitlab.data.imagenet import open_imagenet, wordnet_ids

SHARK, GOLDFISH, TOILET_TISSUE = "n01484850", "n01443537", "n15075141"  # labels 2, 1 and 999


def write(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2)).save(root / path, format="JPEG")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All 1,000 classes, with one image each, and a second one of label 2 in train."""
    root = tmp_path_factory.mktemp("imagenet")
    for split in ("train", "val"):
        for name in wordnet_ids():
            (root / split / name).mkdir(parents=True)
            (root / split / name / f"{name}_1.JPEG").write_bytes(b"")
    (root / "train" / SHARK / f"{SHARK}_10.JPEG").write_bytes(b"")
    return root


@pytest.mark.filterwarnings("ignore:.*ImageNet-1K has")
def test_all_classes_in_the_order_of_their_ids(whole):
    data = open_imagenet(whole)
    assert data.classes == tuple(sorted(data.classes)) and len(data.classes) == 1000
    assert data.test.labels.tolist() == list(range(1000)) and len(data.train) == 1001
    for i in (0, 2, 3, 1000):
        assert data.train.path(i).parent.name == data.classes[data.train.labels[i]]
    # torchvision sorts names as plain text: _1 and then _10.
    assert [data.train.path(i).stem for i in (2, 3)] == [f"{SHARK}_1", f"{SHARK}_10"]
    assert (data.train.on_broken, data.test.on_broken) == ("replace", "mark")
    assert data.mean == (0.485, 0.456, 0.406)


def test_an_unofficial_number_of_images_gives_a_warning(whole):
    with pytest.warns(UserWarning) as caught:
        open_imagenet(whole)
    train, val = (str(warning.message) for warning in caught)
    assert "1,001 images, ImageNet-1K has 1,281,167" in train and "1,000 images, ImageNet-1K has 50,000" in val


def test_a_subset_of_classes_keeps_the_labels(tmp_path):
    write(tmp_path, f"{TOILET_TISSUE}/a.JPEG", f"{SHARK}/b.JPEG")
    with pytest.raises(VitlabError, match=r"2 of the 1,000 classes .*full=False"):
        open_imagenet(tmp_path)
    data = open_imagenet(tmp_path, full=False)
    assert data.train is None and data.test.labels.tolist() == [2, 999] and len(data.classes) == 1000


def test_val_alone_is_for_evaluation(tmp_path):
    write(tmp_path, f"val/{SHARK}/b.JPEG", f"val/{GOLDFISH}/b.JPEG")
    data = open_imagenet(tmp_path, full=False)
    assert data.train is None and data.test.labels.tolist() == [1, 2]


def test_folders_that_are_not_classes_are_named(tmp_path):
    write(tmp_path, f"{SHARK}/b.JPEG", "notes/b.JPEG")
    with pytest.warns(UserWarning, match="1 folders that are not classes: notes"):
        assert len(open_imagenet(tmp_path, full=False).test) == 1


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ((f"train/{SHARK}/1.JPEG", "val/ILSVRC2012_val_00000001.JPEG"), r"val has no class folders; move its 1 images"),
        ((f"train/{SHARK}/1.JPEG",), r"train/ but no val/"),
        (("val/cat/1.JPEG",), r"has 'cat' and 0 other folders, none of them a class"),
        ((), "is empty"),
    ],
)
def test_a_wrong_layout_raises_with_the_expected_tree(tmp_path, paths, message):
    write(tmp_path, *paths)
    with pytest.raises(VitlabError, match=message) as error:
        open_imagenet(tmp_path, full=False)
    assert "ROOT/val/n01440764/ILSVRC2012_val_00000293.JPEG" in str(error.value)


@pytest.mark.realdata
def test_the_real_images_can_all_be_read():
    folder = Path(os.environ.get("VITLAB_DATA", "")) / "imagenet-val-1000"
    if not os.environ.get("VITLAB_DATA") or not folder.is_dir():
        pytest.skip("VITLAB_DATA names no folder with imagenet-val-1000 in it")
    test = open_imagenet(folder).test
    assert test.labels.tolist() == list(range(1000))
    assert {test[i][0].size for i in range(0, 1000, 50)} == {(256, 256)} and not test.broken.any()
