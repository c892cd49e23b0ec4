"""ImageNet-R: the map of its 200 classes, and both forms of the argmax."""

from __future__ import annotations

import pkgutil

import pytest

import vitlab
from cases.published import Colours, fill
from vitlab.data.robustness_sets import labels_200

INDICES = [int(line) for line in pkgutil.get_data("timm.data", "_info/imagenet_r_indices.txt").decode().split()]


def test_the_200_classes() -> None:
    labels = labels_200("r")
    assert sorted(labels.values()) == INDICES and len(set(labels.values())) == 200
    assert labels["n01443537"] == 1 and 0 not in labels.values()  # goldfish is one, tench none
    assert len(set(labels) & set(labels_200("a"))) < 200, "the sets have different classes"


def test_both_forms_of_the_argmax(tmp_path) -> None:
    """Goldfish is 1, and 0 and 3 are not classes of the set: the closest among the 200 are 1, and 2 or 4."""
    fill(tmp_path / "imagenet-r", {"n01443537": [1, 0, 0, 3, 500]})
    found = vitlab.stress("imagenet_r", Colours(), tmp_path, processes=0)
    assert found.values["accuracy_200"] == pytest.approx(3 / 5)
    assert found.values["accuracy_1000"] == pytest.approx(1 / 5)
    provenance = found.provenance
    assert (
        provenance["partial"] is True
        and len(provenance["missing_classes"]) == 199
        and provenance["official_images"] == 30_000
    )


def test_files_of_imagenet_a_raise(tmp_path) -> None:
    fill(tmp_path, {name: [label] for name, label in list(labels_200("a").items())[:20]})
    with pytest.raises(vitlab.VitlabError, match=r"not a class of this set.*\n  ROOT/imagenet-r/n01443537"):
        vitlab.stress("imagenet_r", Colours(), tmp_path, processes=0)
