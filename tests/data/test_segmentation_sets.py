"""Data sets with label maps: layouts on disk, label values, and one-line errors that name the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.core.errors import VitlabError
from vitlab.data.scenes import draw_scenes
from vitlab.data.segmentation_sets import CITYSCAPES_IDS, check_pairs, open_pairs, pair_sets


def write(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(np.uint8)).save(path)


def write_pair(image: Path, labels: Path, values: np.ndarray, colour: int = 9) -> None:
    write(image, np.full((*values.shape, 3), colour))
    write(labels, values)


def test_camvid_ignores_unlabelled_pixels(tmp_path: Path) -> None:
    folder = tmp_path / "camvid"
    for split in ("train", "val", "test"):
        for number in (2, 10):
            values = np.array([[0, 10, 11]])
            write_pair(folder / split / f"images/{number}.png", folder / split / f"labels/{number}.png", values, number)
    (folder / "classes.txt").write_text("\n".join(f"class {i}" for i in range(11)) + "\nUnlabelled\n")
    data = open_pairs("camvid", root=tmp_path)
    assert len(data.classes) == 11 and data.classes[10] == "class 10" and len(data.train) == 2
    pixels, labels = data.test[1]
    assert labels.tolist() == [[0, 10, 255]] and pixels.shape == (3, 1, 3) and int(pixels.max()) == 10  # natural order


def test_ade20k_shifts_its_labels(tmp_path: Path) -> None:
    folder = tmp_path / "ADEChallengeData2016"
    for split in ("training", "validation"):
        values = np.array([[0, 1, 150]])
        write_pair(folder / "images" / split / "a.jpg", folder / "annotations" / split / "a.png", values)
    data = open_pairs("ade20k", root=tmp_path)
    assert data.test[0][1].tolist() == [[255, 0, 149]] and len(data.classes) == 150


def test_cityscapes_maps_ids_to_training_labels(tmp_path: Path) -> None:
    folder = tmp_path / "cityscapes"
    for split in ("train", "val"):
        image = folder / "leftImg8bit" / split / "ulm/ulm_0_leftImg8bit.png"
        write_pair(image, folder / "gtFine" / split / "ulm/ulm_0_gtFine_labelIds.png", np.array([[7, 33, 0, 29]]))
    data = open_pairs("cityscapes", root=tmp_path)
    assert data.test[0][1].tolist() == [[0, 18, 255, 255]] and len(set(CITYSCAPES_IDS)) == 19


def test_scenes_have_the_masks_of_the_generator() -> None:
    data = open_pairs("scenes(train=3, test=2, objects=3, seed=5)", image_size=(24, 32))
    scenes = draw_scenes(3, (24, 32), 5, objects=3)
    for index in range(3):
        pixels, labels = data.train[index]
        assert torch.equal(pixels, scenes.images[index]) and torch.equal(labels, scenes.masks[index])
    by_shape = open_pairs("scenes(train=3, test=2, objects=3, seed=5, labels='shape')", image_size=(24, 32))
    texture = open_pairs("scenes(train=3, test=2, objects=3, seed=5, labels='texture')", image_size=(24, 32))
    for index in range(3):
        full = data.train[index][1].flatten().tolist()
        assert by_shape.train[index][1].flatten().tolist() == [(value - 1) // 5 + 1 if value else 0 for value in full]
        assert texture.train[index][1].flatten().tolist() == [(value - 1) % 5 + 1 if value else 0 for value in full]
        assert max(full) > 0


def test_pairs_of_folders_hold_out_a_share(tmp_path: Path) -> None:
    for number in range(10):
        write_pair(tmp_path / f"images/{number}.png", tmp_path / f"labels/{number}.png", np.array([[0, 2, 7]]), number)
    text = f"pairs(images='{tmp_path}/images', labels='{tmp_path}/labels', classes=3, ignore=7, holdout=0.3)"
    data = open_pairs(text)
    assert (len(data.train), len(data.test)) == (7, 3) and data.test[0][1].tolist() == [[0, 2, 255]]
    colours = {int(split[i][0].max()) for split in (data.train, data.test) for i in range(len(split))}
    assert len(colours) == 10


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([[0, 5]]), r"labels/0.png has the label 5, which is none of the 3 classes"),
        (np.zeros((2, 2)), r"labels of shape \(2, 2\), but .*images/0.png has \(h, w\) = \(1, 2\)"),
    ],
)
def test_wrong_labels_are_named(tmp_path: Path, values: np.ndarray, message: str) -> None:
    for number in range(2):
        write(tmp_path / f"images/{number}.png", np.zeros((1, 2, 3)))
        write(tmp_path / f"labels/{number}.png", values)
    data = open_pairs(f"pairs(images='{tmp_path}/images', labels='{tmp_path}/labels', classes=3, holdout=0.5)")
    split = data.train if "0.png" in str(data.train.paths) else data.test
    with pytest.raises(VitlabError, match=message) as caught:
        split[0]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [1.5, float("nan"), float("inf"), -1.0])
def test_labels_that_are_no_whole_numbers_are_named(tmp_path: Path, wrong: float) -> None:
    for number in range(2):
        write(tmp_path / f"images/{number}.png", np.zeros((1, 2, 3)))
        (tmp_path / "labels").mkdir(exist_ok=True)
        Image.fromarray(np.array([[2.0, wrong if number else 255]], dtype=np.float32)).save(
            tmp_path / f"labels/{number}.tif"
        )
    data = open_pairs(f"pairs(images='{tmp_path}/images', labels='{tmp_path}/labels', classes=3, holdout=0.5)")
    good, bad = (data.train, data.test) if "0.png" in str(data.train.paths) else (data.test, data.train)
    assert good[0][1].tolist() == [[2, 255]]
    with pytest.raises(VitlabError, match=rf"labels/1\.tif has the label {wrong}, which is none of the 3 classes"):
        bad[0]


def test_a_list_of_classes_that_is_too_short_is_named(tmp_path: Path) -> None:
    """Labels without a class raised an IndexError in the first step, on a GPU an assertion of the device."""
    values = np.array([[0, 1]])
    for split in ("train", "test"):
        write_pair(tmp_path / f"camvid/{split}/images/a.png", tmp_path / f"camvid/{split}/labels/a.png", values)
    (tmp_path / "camvid/classes.txt").write_text("Sky\nBuilding\n")
    with pytest.raises(VitlabError, match=r"camvid/classes.txt has 2 names of classes; expected 11"):
        open_pairs("camvid", root=tmp_path)
    folder = tmp_path / "ADEChallengeData2016"
    for split in ("training", "validation"):
        write_pair(folder / f"images/{split}/a.jpg", folder / f"annotations/{split}/a.png", values)
    (folder / "objectInfo150.txt").write_text("Idx\tName\n1\twall, surface\n2\tbuilding\n")
    with pytest.raises(VitlabError, match=r"objectInfo150.txt has 2 names of classes; expected 150"):
        open_pairs("ade20k", root=tmp_path)
    rows = "".join(f"{number}\tname {number}, other\n" for number in range(1, 151))
    (folder / "objectInfo150.txt").write_text("Idx\tName\n" + rows)
    assert open_pairs("ade20k", root=tmp_path).classes[::149] == ("name 1", "name 150")


def test_missing_labels_are_named(tmp_path: Path) -> None:
    write(tmp_path / "images/a.png", np.zeros((1, 2, 3)))
    write(tmp_path / "images/b.png", np.zeros((1, 2, 3)))
    write(tmp_path / "labels/a.png", np.zeros((1, 2)))
    with pytest.raises(VitlabError, match="1 of 2 images .* for example b"):
        open_pairs(f"pairs(images='{tmp_path}/images', labels='{tmp_path}/labels', classes=3)")


@pytest.mark.parametrize("folder", ["images", "labels"])
def test_files_of_one_name_with_different_suffixes_are_an_error(folder: str, tmp_path: Path) -> None:
    """One of two label maps of an image was chosen silently, and two images shared one label map."""
    write_pair(tmp_path / "images/a.png", tmp_path / "labels/a.png", np.zeros((1, 2)))
    write(tmp_path / f"{folder}/a.bmp", np.zeros((1, 2)))
    with pytest.raises(VitlabError, match=r"a\.bmp and a\.png have the same name"):
        open_pairs(f"pairs(images='{tmp_path}/images', labels='{tmp_path}/labels', classes=3)")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"labels/{number}.png", np.zeros((1, 2)))
        (tmp_path / "images").mkdir(exist_ok=True)
        (tmp_path / f"images/{number}.png").write_bytes(b"no image")
    data = open_pairs(f"pairs(images='{tmp_path}/images', labels='{tmp_path}/labels', classes=3, holdout=0.5)")
    with pytest.raises(VitlabError, match=r"cannot read .*images/\d.png"):
        data.train[0]


@pytest.mark.parametrize("text", ["camvidd", "scenes(labels='colour')", "pairs(images='x')", "ade20k(train=3)"])
def test_mistakes_in_expressions_are_found_without_reading(text: str) -> None:
    with pytest.raises(VitlabError):
        check_pairs(text)


def test_every_set_is_described() -> None:
    assert all(pair_sets().values()) and next(iter(pair_sets())) == "scenes"
