"""ImageNet-Sketch: grey drawings of all 1000 classes."""

from __future__ import annotations

import pytest
from PIL import Image

import vitlab
from cases.published import Colours, fill
from vitlab.data.imagenet import wordnet_ids


@pytest.mark.parametrize("below", ["", "sketch", "imagenet-sketch"])
def test_accuracy(tmp_path, below) -> None:
    ids = wordnet_ids()
    fill(tmp_path / below, {ids[0]: [0, 1], ids[999]: [999], ids[333]: [333, 334]})
    Image.new("L", (8, 8), 10 + 25 * 3).save(tmp_path / below / ids[333] / "grey.png")  # 3 in each channel
    found = vitlab.stress("imagenet_sketch", Colours(), tmp_path, processes=0)
    assert found.values["accuracy"] == pytest.approx(4 / 6)
    assert found.values["accuracy_error"] ** 2 == pytest.approx(4 / 6 * 2 / 6 / 5)
    assert found.provenance["argmax"] == {"accuracy": "1000-way"} and len(found.provenance["missing_classes"]) == 997
    assert found.provenance["partial"] is True and found.provenance["official_images"] == 50_889


def test_unknown_folders(tmp_path) -> None:
    fill(tmp_path, {"n01440764": [0, 0], "not a class": [1]})
    with pytest.warns(UserWarning, match="1 folders that are not classes: not a class"):
        found = vitlab.stress("imagenet_sketch", Colours(), tmp_path, processes=0)
    assert found.provenance["images"] == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(vitlab.VitlabError, match=r"no sketch in .*; expected:\n  ROOT/sketch/n01440764/sketch_0"):
        vitlab.stress("imagenet_sketch", Colours(), tmp_path / "empty", processes=0)
    (tmp_path / "hollow" / "n01440764").mkdir(parents=True)
    with pytest.raises(vitlab.VitlabError, match="contains no images in any"):
        vitlab.stress("imagenet_sketch", Colours(), tmp_path / "hollow", processes=0)


def test_one_image_has_no_standard_error(tmp_path) -> None:
    fill(tmp_path, {"n01440764": [0]})
    with pytest.raises(vitlab.VitlabError, match="at least two readable images"):
        vitlab.stress("imagenet_sketch", Colours(), tmp_path, processes=0)
