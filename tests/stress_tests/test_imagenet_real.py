"""ReaL: any of an image's labels is right, images without one do not count."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch
from timm.data.real_labels import RealLabelsImagenet

import vitlab
from cases.published import Colours, paint
from vitlab.data.imagenet import wordnet_ids

#: Labels in timm's copy of the first six validation images: none, two labels, two, one, two, one.
REAL = [[], [970, 795], [230, 231], [809], [516, 850], [57]]
ANSWERS = [65, 795, 230, 800, 516, 57]
ORIGINAL = [65, 970, 230, 809, 516, 57]


def name(number: int) -> str:
    return f"ILSVRC2012_val_{number:08d}.JPEG"


def write(root, flat=False) -> None:
    for i, (answer, original) in enumerate(zip(ANSWERS, ORIGINAL, strict=True), start=1):
        paint(root / ("" if flat else wordnet_ids()[original]) / name(i), answer)


def stress(root, **settings):
    return vitlab.stress("imagenet_real", Colours(), root, processes=0, **settings)


def test_the_labels_are_those_of_timm() -> None:
    labels = RealLabelsImagenet(range(50_000)).real_labels
    assert [labels[name(i)] for i in range(1, 7)] == REAL
    assert sum(not each for each in labels.values()) == 3163


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("below", ["", "val"])
def test_accuracy(tmp_path, flat, below) -> None:
    write(tmp_path / below, flat)
    found = stress(tmp_path)
    assert found.values["accuracy"] == pytest.approx(4 / 5)  # the first has no label, the fourth is wrong
    assert found.values["accuracy_error"] ** 2 == pytest.approx(4 / 5 * 1 / 5 / 4)
    if flat:
        assert np.isnan(found.values["original_accuracy"]) and found.provenance["missing_classes"] == []
    else:
        assert found.values["original_accuracy"] == pytest.approx(4 / 6)
    assert found.provenance["images"] == 6 and found.provenance["images_with_labels"] == 5
    assert found.provenance["partial"] is True and found.provenance["labels"] == "timm's real.json"


def test_a_file_of_labels_beside_the_images(tmp_path) -> None:
    write(tmp_path / "val")
    labels = [[answer] for answer in ANSWERS] + [[]] * (50_000 - 6)
    (tmp_path / "real.json").write_text(json.dumps(labels))
    found = stress(tmp_path)
    assert found.values["accuracy"] == 1 and found.provenance["labels"] == str(tmp_path / "real.json")
    for wrong in ("[[1]]", "{", json.dumps([[1000]] * 50_000), json.dumps([1] * 50_000)):
        (tmp_path / "real.json").write_text(wrong)
        with pytest.raises(vitlab.VitlabError, match=r"real\.json"):
            stress(tmp_path)


def test_names_identify_images(tmp_path) -> None:
    write(tmp_path)
    paint(tmp_path / wordnet_ids()[0] / "cat.jpg", 0)
    with pytest.raises(vitlab.VitlabError, match=r"cat.jpg does not have the name of a validation.*\n  ROOT/val/"):
        stress(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(vitlab.VitlabError, match=r"no val in .*\n  ROOT/val/n01440764/ILSVRC2012_val_00000293"):
        stress(empty)


@pytest.mark.slow
@pytest.mark.realdata
def test_real_images_against_a_loop_with_timms_own_pieces() -> None:
    from pathlib import Path

    from PIL import Image
    from timm.data import create_transform, resolve_data_config

    root = Path(os.environ["VITLAB_DATA"])
    text = f"timm/deit_tiny_patch16_224(weights={str(root / 'deit_tiny_patch16_224.safetensors')!r})"
    model = vitlab.load(text)
    found = vitlab.stress("imagenet_real", model, root / "imagenet-val-1000", images=20, processes=0)
    files = sorted((root / "imagenet-val-1000").glob("*/*.JPEG"))
    transform = create_transform(**resolve_data_config({}, model=model))
    real, right, original = RealLabelsImagenet(range(50_000)).real_labels, [], []
    with torch.no_grad():
        for file in files[:: len(files) // 20]:
            answer = int(model.eval()(transform(Image.open(file).convert("RGB"))[None]).argmax())
            original.append(wordnet_ids()[answer] == file.parent.name)
            right += [answer in real[file.name]] if real[file.name] else []
    assert found.values["accuracy"] == pytest.approx(np.mean(right)) and 0.5 < np.mean(right) < 1
    assert found.values["original_accuracy"] == pytest.approx(np.mean(original))
