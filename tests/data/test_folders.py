"""Image folders against trees written here."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitlab.core.errors import VitlabError
from vitlab.data.folders import gather, natural, open_folder
from vitlab.data.images import UNLABELLED


def write(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2)).save(root / path, format="PNG")


def listed(images):
    return [(str(images.path(i).relative_to(images.root)), int(images.labels[i])) for i in range(len(images))]


def test_a_standard_deviation_of_zero_is_refused(tmp_path) -> None:
    with pytest.raises(VitlabError, match=r"folder\(std=\(0, 0, 0\)\): expected \(a number above 0"):
        open_folder(tmp_path, std=(0, 0, 0))


def test_splits_share_the_classes_in_natural_order(tmp_path):
    write(
        tmp_path, "train/c10/b.jpg", "train/c9/x10.png", "train/c9/x9.PNG", "train/c9/deep/er/y.webp", "val/c10/z.jpg"
    )
    write(tmp_path, "val/c9/z.jpg")
    data = open_folder(tmp_path)
    assert data.classes == ("c9", "c10")
    assert listed(data.train) == [("c9/deep/er/y.webp", 0), ("c9/x9.PNG", 0), ("c9/x10.png", 0), ("c10/b.jpg", 1)]
    assert listed(data.test) == [("c9/z.jpg", 0), ("c10/z.jpg", 1)]
    assert (data.train.on_broken, data.test.on_broken) == ("replace", "mark")
    assert data.train[3][0].size == (2, 2) and data.mean == (0.485, 0.456, 0.406)


def test_test_is_preferred_to_val(tmp_path):
    write(tmp_path, "train/a/1.png", "val/a/2.png", "test/a/3.png")
    assert listed(open_folder(tmp_path).test) == [("a/3.png", 0)]


def test_other_files_and_hidden_files_are_skipped(tmp_path):
    write(tmp_path, "a/1.png", "a/._1.png", "a/.cache/2.png", ".git/3.png", "b/4.png")
    (tmp_path / "a" / "labels.csv").write_text("1")
    assert listed(open_folder(tmp_path).test) == [("a/1.png", 0), ("b/4.png", 1)]


def test_a_broken_link_is_a_missing_image(tmp_path):
    write(tmp_path, "a/1.png")
    (tmp_path / "a" / "2.png").symlink_to(tmp_path / "gone.png")
    test = open_folder(tmp_path).test
    with pytest.warns(UserWarning, match=r"2\.png"):
        assert [test[i][1] for i in range(2)] == [0, -100]


def test_without_splits_training_images_need_a_holdout(tmp_path):
    write(tmp_path, *(f"{name}/{i}.png" for name in "ab" for i in range(10)))
    whole = open_folder(tmp_path)
    assert whole.train is None and len(whole.test) == 20
    split = open_folder(tmp_path, holdout=0.3, seed=5)
    assert split.test.labels.bincount().tolist() == [3, 3]
    assert (split.train.on_broken, split.test.on_broken) == ("replace", "mark")
    assert sorted(listed(split.train) + listed(split.test)) == sorted(listed(whole.test))
    assert listed(split.test) == listed(open_folder(tmp_path, holdout=0.3, seed=5).test)


def test_empty_classes_are_named(tmp_path):
    write(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    (tmp_path / "test" / "b").mkdir()
    with pytest.warns(UserWarning, match="no images of 1 classes: b"):
        data = open_folder(tmp_path)
    assert data.test.classes == ("a", "b")


def test_names_that_are_not_ascii_are_kept(tmp_path):
    write(tmp_path, "größe/ü 1.png", "日本/2.png")
    test = open_folder(tmp_path).test
    assert [test[i][1] for i in range(2)] == [0, 1] and not test.broken.any()


def test_a_class_may_be_a_link_to_a_folder(tmp_path):
    write(tmp_path, "elsewhere/a/1.png")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").symlink_to(tmp_path / "elsewhere" / "a")
    assert listed(open_folder(tmp_path / "set").test) == [("a/1.png", 0)]


@pytest.mark.parametrize(
    ("paths", "options", "message"),
    [
        ((), {}, "no class folders"),
        (("1.png", "2.png"), {"holdout": 0.5}, "have no labels to train on"),
        (("train/a/1.png",), {}, "no test/"),
        (("train/1.png", "test/1.png"), {}, "no class folders"),
        (("train/a/1.png", "test/a/1.png"), {"holdout": 0.5}, "omit holdout"),
        (("a/1.png",), {"holdout": 0.5}, "no training images"),
        (("a/1.png",), {"holdout": 2}, "between 0 and 1"),
    ],
)
def test_a_wrong_layout_is_refused(tmp_path, paths, options, message):
    write(tmp_path, *paths)
    with pytest.raises(VitlabError, match=message):
        open_folder(tmp_path, **options)


def test_the_error_shows_the_tree(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(VitlabError, match="ROOT/train/<class>/"):
        open_folder(tmp_path / "nowhere")
    with pytest.raises(VitlabError, match=r"no images in any of its 1 classes.*\n.*ROOT/train/<class>/"):
        gather(tmp_path, ["a"])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 10**6), unique=True, min_size=2, max_size=20), st.randoms())
def test_natural_order_is_that_of_the_numbers(values, shuffler: random.Random):
    names = [f"image {value}²" for value in sorted(values)]
    mixed = shuffler.sample(names, len(names))
    assert sorted(mixed, key=natural) == names


def test_images_without_folders_of_classes_have_no_labels(tmp_path) -> None:
    for name in ("10.png", "9.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    data = open_folder(tmp_path)
    assert data.classes == () and data.train is None
    assert [data.test.path(i).name for i in range(2)] == ["9.png", "10.png"]
    assert data.test.labels.tolist() == [UNLABELLED] * 2
