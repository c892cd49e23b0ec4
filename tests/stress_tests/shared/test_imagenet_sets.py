"""The definitions of ImageNet-A, -R, -Sketch and -V2 against their cards, layouts and folders on disk."""

from __future__ import annotations

from importlib import import_module

import pytest

from cases.published import fill
from vitlab.core import descriptions
from vitlab.stress_tests.shared.imagenet_sets import IMAGENET_A, IMAGENET_R, IMAGENET_SKETCH, IMAGENET_V2

TESTS = (IMAGENET_A, IMAGENET_R, IMAGENET_SKETCH, IMAGENET_V2)


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_the_definition_agrees_with_the_public_file(test) -> None:
    module = import_module(f"vitlab.stress_tests.{test.name}")
    card = descriptions.card(module.__name__)
    total = test.official_images * len(test.subsets)
    assert test.paper in card["paper"] and f"{total:,} " in card["cost"]
    assert test.tree == module.TREE and f"{test.official_images:,} images" in test.tree
    official = [f"ROOT/{path or test.folders[0]}/" for path in test.subsets.values()]
    assert all(any(line.strip().startswith(path) for line in test.tree.splitlines()) for path in official)
    assert len(test.labels()) == (200 if "accuracy_200" in test.forms else 1000)


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_every_folder_name_is_found(test, tmp_path) -> None:
    name, label = list(test.labels().items())[7]
    for i, folder in enumerate((*test.folders, ".")):
        for path in test.subsets.values():
            fill(tmp_path / str(i) / folder / path, {name: [0, 1, 2]})
        found = test.open(tmp_path / str(i))
        assert {subset: images.labels.tolist() for subset, images in found.items()} == {
            subset: [label] * 3 for subset in test.subsets
        }


def test_the_forms_of_the_argmax() -> None:
    for test in (IMAGENET_A, IMAGENET_R):
        forms = test.classes_by_form()
        assert forms["accuracy_1000"] is None and sorted(forms["accuracy_200"]) == sorted(test.labels().values())
    for test in (IMAGENET_SKETCH, IMAGENET_V2):
        assert test.classes_by_form() == {"accuracy": None}
