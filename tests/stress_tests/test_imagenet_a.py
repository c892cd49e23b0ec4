"""ImageNet-A: the map of its 200 classes, both forms of the argmax against loops, and invalid folders."""

from __future__ import annotations

import os
import pkgutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from timm.data import ImageNetInfo

import vitlab
from cases.published import Colours, fill, paint
from vitlab.core.measurement import Measurement
from vitlab.data.robustness_sets import labels_200
from vitlab.stress_tests.shared.imagenet_sets import IMAGENET_A

INDICES = [int(line) for line in pkgutil.get_data("timm.data", "_info/imagenet_a_indices.txt").decode().split()]
#: Label 6, 11 and 90 of ImageNet-1K; the colours say these or others.
ANSWERS = {"n01498041": [6, 7, 400, 9], "n01531178": [11, 12], "n01820546": [90, 6, 90]}
LABELS = {"n01498041": 6, "n01531178": 11, "n01820546": 90}


def stress(root, model=None, **settings) -> Measurement:
    return vitlab.stress("imagenet_a", model or Colours(), root, **{"processes": 0, "batch_size": 4, **settings})


def expected() -> tuple[list[float], list[float]]:
    """Correctness among the 200 and among the 1000 classes, by image."""
    pairs = [(LABELS[name], answer) for name, answers in ANSWERS.items() for answer in answers]
    among = [float(min(INDICES, key=lambda c: abs(c - answer)) == label) for label, answer in pairs]
    return among, [float(answer == label) for label, answer in pairs]


def test_the_200_classes() -> None:
    """timm has two lists: WordNet ids, which we read, and indices."""
    labels = labels_200("a")
    assert sorted(labels.values()) == INDICES and len(set(labels.values())) == 200
    assert labels["n01498041"] == 6 and 1 not in labels.values()  # stingray is one, goldfish none


@pytest.mark.parametrize("below", ["", "imagenet-a"])
def test_both_forms_of_the_argmax(tmp_path, below) -> None:
    fill(tmp_path / below, ANSWERS)
    (tmp_path / below / "README.txt").write_text("not an image")
    found = stress(tmp_path)
    among, plain = expected()
    assert sum(among) > sum(plain) > 0, "the two forms must differ here"
    for name, marks in (("accuracy_200", among), ("accuracy_1000", plain)):
        assert found.values[name] == pytest.approx(np.mean(marks))
        assert found.values[f"{name}_error"] == pytest.approx(np.std(marks, ddof=1) / 3)
    provenance = found.provenance
    assert provenance["argmax"] == {"accuracy_200": "200-way", "accuracy_1000": "1000-way"}
    assert provenance["images"] == 9 and provenance["partial"] is True and provenance["broken"] == 0
    assert (
        set(provenance["missing_classes"]) == set(labels_200("a")) - set(ANSWERS) and provenance["missing_sets"] == []
    )
    assert provenance["preprocessing"]["size"] == [8, 8] and provenance["preprocessing"]["crop"] == 0.875


def test_outputs_in_another_order_are_refused(tmp_path) -> None:
    """Labels of the set are positions in ImageNet-1K's order: other outputs would be counted as wrong answers."""
    fill(tmp_path, ANSWERS)
    info = ImageNetInfo("imagenet-1k")
    words = [info.label_name_to_description(name) for name in info.label_names()]
    plain = stress(tmp_path).values["accuracy_1000"]
    for names in (info.label_names(), words, [word.partition(",")[0] for word in words]):
        model = Colours()
        vitlab.preprocessing.declare(model, mean=(0.5,) * 3, std=(0.5,) * 3, classes=tuple(names))
        assert stress(tmp_path, model).values["accuracy_1000"].shape == plain.shape
        vitlab.preprocessing.declare(model, mean=(0.5,) * 3, std=(0.5,) * 3, classes=tuple(sorted(names)[::-1]))
        with pytest.raises(vitlab.VitlabError, match="positions in the order n01440764, n01443537"):
            stress(tmp_path, model)


def test_a_whole_set_is_not_partial(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("vitlab.stress_tests.imagenet_a.IMAGENET_A", replace(IMAGENET_A, official_images=200))
    fill(tmp_path, {name: [label] for name, label in labels_200("a").items()})
    found = stress(tmp_path, batch_size=64)
    assert found.values["accuracy_200"] == found.values["accuracy_1000"] == 1
    assert found.provenance["partial"] is False and found.provenance["missing_classes"] == []


def test_broken_images_are_named_counted_and_skipped(tmp_path) -> None:
    fill(tmp_path, ANSWERS)
    (tmp_path / "n01498041" / "0.JPEG").write_bytes(b"no image")
    whole = (tmp_path / "n01531178" / "1.JPEG").read_bytes()
    (tmp_path / "n01531178" / "1.JPEG").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "n01531178" / "._0.JPEG").write_bytes(b"hidden, and left out")
    with pytest.warns(UserWarning, match="cannot read the image"):
        found = stress(tmp_path, batch_size=1)
    among, plain = (np.delete(marks, [0, 5]) for marks in expected())
    assert found.values["accuracy_200"] == pytest.approx(among.mean())
    assert found.values["accuracy_1000"] == pytest.approx(plain.mean())
    provenance = found.provenance
    assert provenance["images"] == 7 and provenance["broken"] == 2 and provenance["partial"] is True
    assert provenance["broken_files"] == [str(tmp_path / "n01498041/0.JPEG"), str(tmp_path / "n01531178/1.JPEG")]


def test_hostile_names(tmp_path) -> None:
    """A file with any name is an image or is named in the result, and the result can be stored."""
    for name in ("a\nb.jpg", "<script>.jpg", "-rf *.jpg", "ü.JPEG"):
        paint(tmp_path / "n01498041" / name, 6)
    bad = os.path.join(os.fsencode(tmp_path / "n01498041"), b"\xff\xfe.jpg")
    with open(bad, "wb") as file:
        file.write(b"no image")
    with pytest.warns(UserWarning, match="cannot read the image"):
        found = stress(tmp_path)
    assert found.values["accuracy_1000"] == 1 and found.provenance["images"] == 4
    assert found.provenance["broken_files"][0].endswith(r"\xff\xfe.jpg")
    again = Measurement.load(found.save(tmp_path / "kept"))
    assert again.provenance["broken_files"] == found.provenance["broken_files"]


def test_a_set_that_cannot_be_read_at_all(tmp_path) -> None:
    for i in range(3):
        (tmp_path / "n01498041").mkdir(exist_ok=True)
        (tmp_path / "n01498041" / f"{i}.jpg").write_bytes(b"")
    with (
        pytest.warns(UserWarning),
        pytest.raises(vitlab.VitlabError, match="cannot read any of the 3 images of imagenet-a"),
    ):
        stress(tmp_path)


def test_invalid_layouts(tmp_path) -> None:
    tree = r"expected:\n  ROOT/imagenet-a/n01498041/"
    with pytest.raises(vitlab.VitlabError, match=f"no folder .*{tree}"):
        stress(tmp_path / "nowhere")
    with pytest.raises(vitlab.VitlabError, match=f"no imagenet-a in .*{tree}"):
        stress(tmp_path)
    paint(tmp_path / "flat.jpg", 6)
    with pytest.raises(vitlab.VitlabError, match=f"no imagenet-a in .*{tree}"):
        stress(tmp_path)
    fill(tmp_path, {"n01498041": [6, 6], "n01440764": [0]})  # tench, of ImageNet's own folders
    with pytest.raises(vitlab.VitlabError, match=f"n01440764, which is not a class of this set.*{tree}"):
        stress(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preprocessing": {"sizes": 8}}, "did you mean 'size'"),
        ({"preprocessing": {"crop": 0}}, "crop in"),
        ({"preprocessing": {"mean": 0.5}}, "three numbers"),
        ({"preprocessing": 224}, "expected a Preprocessing, or a dict"),
        ({"preprocessing": {"interpolation": "cubic"}}, "interpolation one of"),
        ({"images": 1}, "expected 2 to 9"),
        ({"images": 10}, "expected 2 to 9"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"image": 3}, "did you mean 'images'"),
        ({"model": Colours(10)}, "1000 classes of ImageNet-1K; this model has 10"),
        ({"model": torch.nn.Linear(3, 1000)}, r"fails on 224x224 images .*set preprocessing="),
        ({"model": "timm/vit"}, "vitlab.load"),
    ],
)
def test_mistakes(tmp_path, settings, message) -> None:
    fill(tmp_path, ANSWERS)
    with pytest.raises(vitlab.VitlabError, match=message) as caught:
        stress(tmp_path, **settings)
    assert len(str(caught.value).splitlines()) == 1


def test_file_based_tests_need_a_folder(tmp_path) -> None:
    with pytest.raises(vitlab.VitlabError, match="expected the path of a folder, got list"):
        vitlab.stress("imagenet_a", Colours(), [(torch.zeros(2, 3, 8, 8), torch.arange(2))])
    for path in (tmp_path, str(tmp_path)):
        with pytest.raises(vitlab.VitlabError, match="expected an iterable of"):
            vitlab.stress("occlusion", Colours(), path)


def test_a_subset_is_evenly_spaced(tmp_path) -> None:
    fill(tmp_path, ANSWERS)
    found = stress(tmp_path, images=3)  # images 0, 3 and 6, of which the first and the last are right
    assert found.values["accuracy_1000"] == pytest.approx(2 / 3) and found.provenance["images"] == 3


def test_worker_processes_do_not_change_results(tmp_path) -> None:
    fill(tmp_path, ANSWERS)
    model = Colours().train()
    state = torch.get_rng_state()
    one, two = (stress(tmp_path, model, processes=n) for n in (0, 2))
    assert all(one.values[name] == two.values[name] for name in one.values)
    assert model.training and torch.is_grad_enabled() and torch.get_rng_state().equal(state)
