"""The COCO reader against pycocotools, and one-line errors for every kind of damaged annotation."""

from __future__ import annotations

import copy
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as reference
from pycocotools.coco import COCO

from vitlab.core.errors import VitlabError
from vitlab.data.catalogue import open_data
from vitlab.data.coco import open_coco
from vitlab.data.coco_annotations import _polygons
from vitlab.data.detection_sets import open_detection
from vitlab.data.run_lengths import decode_mask, encode_mask, uncompressed

HEIGHT, WIDTH = 24, 40


def runs(compressed: bool) -> dict[str, Any]:
    mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    mask[3:9, 20:33] = 1
    mask[5, 22] = 0
    encoded = reference.encode(np.asfortranarray(mask))
    if compressed:
        return {"size": [HEIGHT, WIDTH], "counts": encoded["counts"].decode()}
    flat = mask.flatten(order="F")
    changes = np.flatnonzero(np.diff(flat)) + 1
    return {"size": [HEIGHT, WIDTH], "counts": np.diff([0, *changes, flat.size]).tolist()}


def content() -> dict[str, Any]:
    """Three images: polygons of two pieces, run lengths of both kinds with a crowd, and no object."""
    triangle, square = [2.0, 2.0, 18.0, 3.5, 9.0, 20.0], [30.0, 4.0, 36.0, 4.0, 36.0, 10.0, 30.0, 10.0]
    objects = [
        {"id": 5, "image_id": 7, "category_id": 18, "bbox": [2, 2, 34, 18], "segmentation": [triangle, square]},
        {"id": 6, "image_id": 9, "category_id": 3, "bbox": [20, 3, 13, 6], "segmentation": runs(True), "area": 71.0},
        {"id": 8, "image_id": 9, "category_id": 18, "bbox": [20, 3, 13, 6], "segmentation": runs(False), "iscrowd": 1},
    ]
    images = [{"id": i, "file_name": f"{i}.png", "height": HEIGHT, "width": WIDTH} for i in (7, 9, 11)]
    return {
        "images": images,
        "annotations": objects,
        "categories": [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}],
    }


def write(root: Path, data: Any, split: str = "val2017") -> Path:
    (root / "annotations").mkdir(exist_ok=True)
    (root / split).mkdir(exist_ok=True)
    text = data if isinstance(data, str) else json.dumps(data)
    (root / "annotations" / f"instances_{split}.json").write_text(text)
    if isinstance(data, dict):
        for number, image in enumerate(data.get("images", ())):
            if isinstance(image, dict) and "file_name" in image:
                pixels = np.full((HEIGHT, WIDTH, 3), 10 * number + 5, dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / str(image["file_name"]))
    return root


def test_objects_are_those_of_pycocotools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = open_coco(write(tmp_path, content()))
    known = COCO(str(tmp_path / "annotations" / "instances_val2017.json"))
    assert data.train is None and data.classes == ("car", "dog")
    for i, number in enumerate((7, 9, 11)):
        found, expected = data.test[i], known.imgToAnns[number]
        assert found is not None and found.size == (HEIGHT, WIDTH)
        assert int(found.pixels[0, 0, 0]) == 10 * i + 5
        assert len(found.labels) == len(expected)
        for k, entry in enumerate(expected):
            np.testing.assert_array_equal(found.masks[k].numpy(), known.annToMask(entry))
            x, y, width, height = entry["bbox"]
            assert found.boxes[k].tolist() == [x, y, x + width, y + height]
            assert data.classes[int(found.labels[k]) - 1] == known.cats[entry["category_id"]]["name"]
            assert bool(found.crowd[k]) == bool(entry.get("iscrowd", 0))
    assert data.test[1].areas.tolist()[0] == 71.0  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(5))
def test_run_lengths_are_those_of_pycocotools(seed: int) -> None:
    random = np.random.default_rng(seed)
    mask = (random.random((random.integers(1, 90), random.integers(1, 90))) < random.random()).astype(np.uint8)
    expected = reference.encode(np.asfortranarray(mask))
    assert encode_mask(mask)["counts"] == expected["counts"].decode()
    counts = uncompressed(expected["counts"].decode())
    assert counts is not None and sum(counts) == mask.size
    np.testing.assert_array_equal(decode_mask({"size": list(mask.shape), "counts": counts}, mask.shape), mask)


def test_training_omits_images_without_an_object_and_evaluation_keeps_them(tmp_path: Path) -> None:
    write(tmp_path, content())
    only_crowd = content()
    only_crowd["annotations"] = only_crowd["annotations"][:1] + only_crowd["annotations"][2:]
    data = open_coco(write(tmp_path, only_crowd, "train2017"))
    assert len(data.test) == 3
    assert [image.file for image in data.to_train_on().annotations.images] == ["7.png"]  # type: ignore[attr-defined]


def test_empty_objects_are_dropped_with_one_warning(tmp_path: Path) -> None:
    data = content()
    kept = len(data["annotations"])
    base = data["annotations"][0]
    empty_runs = {"size": [HEIGHT, WIDTH], "counts": [HEIGHT * WIDTH]}
    for number, change in enumerate(
        (
            {"bbox": [3, 3, 0, 5]},
            {"bbox": [3, 3, 5, -2]},
            {"bbox": [WIDTH + 1, 3, 5, 5]},
            {"segmentation": []},
            {"segmentation": [[1.0, 2.0, 3.0, 4.0]]},
            {"segmentation": empty_runs},
            {"segmentation": [[5, 5, 5, 5, 5, 5]]},
            {"segmentation": [[1, 2, 3, 4, 9, 10, 2, 3]]},
            {"segmentation": [[WIDTH + 1, 2, WIDTH + 5, 2, WIDTH + 1, 9]]},
        )
    ):
        data["annotations"].append({**base, "id": 100 + number, **change})
    with pytest.warns(
        UserWarning, match=r"dropped 9 of 12 objects with an empty box or mask \(the first has id 100\)"
    ) as seen:
        opened = open_coco(write(tmp_path, data))
    assert len(seen) == 1
    assert sum(len(opened.test[i].labels) for i in range(3)) == kept  # type: ignore[union-attr]


def test_polygons_are_dropped_only_if_their_mask_is_empty() -> None:
    """pycocotools rasterises random polygons of few points, many of them on one line, and bow ties."""
    random = np.random.default_rng(0)
    bow_tie = [4, 4, 20, 20, 20, 4, 4, 20]
    image = {"height": HEIGHT, "width": WIDTH}
    polygons = [bow_tie, *(random.integers(-6, 46, 2 * n).tolist() for n in random.integers(3, 5, 200))]
    polygons += [[x, 3, x, 9, x, 20, x, 3] for x in range(6)]
    polygons += [(np.array([2, 2, 4, 4, 9, 9]) + random.integers(0, 9)).tolist() for _ in range(20)]
    dropped = 0
    for polygon in polygons:
        kept = _polygons([polygon], image, "")
        mask = reference.decode(reference.frPyObjects([polygon], HEIGHT, WIDTH))
        assert kept == [polygon] or not mask.any()
        dropped += not kept
    assert dropped >= 26 and _polygons([bow_tie], image, "") == [bow_tie]


def test_boxes_beyond_the_image_are_clipped_with_one_warning(tmp_path: Path) -> None:
    data = content()
    data["annotations"][0]["bbox"] = [-3, 2, 50, 30]
    data["annotations"][1]["bbox"] = [20, 3, 20.4, 6]  # rounding: clipped without a warning
    with pytest.warns(UserWarning, match=r"clipped 1 of 3 boxes .* \(the first has id 5\)") as seen:
        opened = open_coco(write(tmp_path, data))
    assert len(seen) == 1
    assert opened.test[0].boxes.tolist() == [[0, 2, WIDTH, HEIGHT]]  # type: ignore[union-attr]
    assert opened.test[1].boxes.tolist()[0] == [20, 3, WIDTH, 9]  # type: ignore[union-attr]


def changed(path: str, value: Any) -> dict[str, Any]:
    """The content with one entry replaced, such as `annotations.0.bbox`; ... removes it."""
    data = content()
    *place, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at: Any = data
    for part in place:
        at = at[part]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{not json", "is not valid JSON"),
        ("[]", "has no list 'images'"),
        (changed("annotations", ...), "has no list 'annotations'"),
        (changed("categories", []), "has no categories"),
        (changed("images.1.file_name", ...), r"image with id 9 has file_name=None; expected a text"),
        (changed("images.1.height", 0), r"image with id 9 has height=0; expected a positive integer"),
        (changed("images.1.file_name", "../secret.png"), "expected a path inside the folder of images"),
        (changed("images.1.id", 7), "more than one image has id 7"),
        (changed("annotations.0.image_id", 99), "annotation with id 5 has image_id=99; no image has this id"),
        (
            changed("annotations.0.category_id", 4),
            r"annotation with id 5 has category_id=4, which is not in categories",
        ),
        (changed("annotations.0.image_id", [7]), r"annotation with id 5 has image_id=\[7\]; no image has this id"),
        (changed("annotations.0.category_id", ...), r"annotation with id 5 has category_id=None, which is not in"),
        (changed("annotations.0.bbox", ...), "annotation with id 5 has bbox=None; expected four numbers"),
        (changed("annotations.0.bbox", [1, 2, 3]), r"bbox=\[1, 2, 3\]; expected four numbers"),
        (changed("annotations.0.bbox", [1, 2, 3, "x"]), "expected four numbers"),
        (changed("annotations.0.area", -5), "annotation with id 5 has area=-5; expected a number from 0"),
        (changed("annotations.0.iscrowd", "0"), "annotation with id 5 has iscrowd='0'; expected 0 or 1"),
        (changed("annotations.0.iscrowd", 2), "iscrowd=2; expected 0 or 1"),
        (changed("annotations.0.segmentation", ...), "segmentation=None; expected polygons or run lengths"),
        (changed("annotations.0.segmentation", [[1, 2, 3]]), "expected a list of x and y in turn"),
        (changed("annotations.0.segmentation", [[1, 2, 1e9, 2, 1e9, 9]]), "expected x and y up to 100,000 pixels"),
        (
            changed("annotations.1.segmentation.size", [9, 9]),
            r"run lengths of size \[9, 9\]; expected that of its image",
        ),
        (changed("annotations.1.segmentation.counts", "zzz"), "invalid run lengths"),
        (changed("annotations.2.segmentation.counts", [5, 5]), "invalid run lengths"),
        (changed("annotations.0", 3), "annotation 0 is 3"),
    ],
)
def test_a_defect_is_named_in_one_line(tmp_path: Path, data: Any, message: str) -> None:
    with pytest.raises(VitlabError, match=message) as error:
        open_coco(write(tmp_path, copy.deepcopy(data)))
    assert "\n" not in str(error.value)
    assert "instances_val2017.json" in str(error.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match="no folder .*nowhere"):
        open_coco(tmp_path / "nowhere")
    (tmp_path / "val2017").mkdir()
    with pytest.raises(VitlabError, match=r"no file .*instances_val2017.json; expected the annotations") as error:
        open_coco(tmp_path)
    assert "\n" not in str(error.value)
    write(tmp_path, content())
    (tmp_path / "val2017" / "9.png").unlink()
    with pytest.raises(VitlabError, match=r"no file '9.png' \(1 of 3 images of instances_val2017.json are missing\)"):
        open_coco(tmp_path)


def test_an_image_of_another_size_is_an_error_and_a_damaged_one_a_warning(tmp_path: Path) -> None:
    data = open_coco(write(tmp_path, content()))
    Image.new("RGB", (WIDTH, HEIGHT + 1)).save(tmp_path / "val2017" / "7.png")
    with pytest.raises(VitlabError, match=r"7.png has 25x40 pixels, but its annotation says 24x40"):
        data.test[0]
    (tmp_path / "val2017" / "9.png").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="cannot read the image .*9.png") as seen:
        assert data.test[1] is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert data.test[1] is None
    assert len(seen) == 1


def test_expressions(tmp_path: Path) -> None:
    (tmp_path / "coco").mkdir()
    root = write(tmp_path / "coco", content())
    for expression in ("coco", f"coco({str(root)!r})", f"coco({str(root)!r}, test='val2017')"):
        assert open_detection(expression, root=tmp_path).classes == ("car", "dog")
    images = open_data("coco", root=tmp_path)
    assert len(images.test) == 3 and images.test[2][0].size == (WIDTH, HEIGHT)
    with pytest.raises(
        VitlabError, match="cifar100 has no boxes and masks of objects; detection data is: scenes, coco"
    ):
        open_detection("cifar100", root=tmp_path)
    with pytest.raises(VitlabError, match="cannot be narrowed by fraction="):
        open_detection("scenes(fraction=0.5)")


def test_the_fingerprint_changes_with_an_annotation(tmp_path: Path) -> None:
    first = open_coco(write(tmp_path, content())).test.fingerprint
    assert open_coco(write(tmp_path, content())).test.fingerprint == first
    assert open_coco(write(tmp_path, changed("annotations.0.bbox", [2, 2, 33, 18]))).test.fingerprint != first


def test_the_stamp_changes_when_an_image_is_replaced(tmp_path: Path) -> None:
    data = open_coco(write(tmp_path, content())).test
    before = data.fingerprint, data.stamp
    image = next((tmp_path / "val2017").iterdir())
    os.utime(image, ns=(0, 1))
    again = open_coco(tmp_path).test
    assert again.fingerprint == before[0] and again.stamp != before[1]
