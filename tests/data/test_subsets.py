"""Classes and fractions against a loop over the images."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.core.errors import VitlabError
from vitlab.data.images import ImageArray, from_splits
from vitlab.data.subsets import narrow, take_classes, take_fraction

CLASSES = ("ant", "bee", "cow", "dog")


def numbered(labels):
    """A set whose image i has the pixels (i // 256, i % 256, 0)."""
    rows = torch.arange(len(labels))
    images = torch.stack([rows // 256, rows % 256, rows * 0], dim=1).to(torch.uint8)[..., None, None]
    return ImageArray(images, torch.tensor(labels), CLASSES)


def numbers(images):
    return [int(a) * 256 + int(b) for a, b, _ in images.images.flatten(1)]


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=200),
    fractions=st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)),
    seed=st.integers(-(2**70), 2**70),
)
def test_a_fraction_is_stratified_nested_and_in_order(labels, fractions, seed):
    images, (small, large) = numbered(labels), sorted(fractions)
    few, more = take_fraction(images, small, seed), take_fraction(images, large, seed)
    assert set(numbers(few)) <= set(numbers(more))
    for part, fraction in ((few, small), (more, large)):
        assert numbers(part) == sorted(set(numbers(part)))
        counts = Counter(part.labels.tolist())
        for label, count in Counter(labels).items():
            assert abs(counts[label] - fraction * count) <= 0.5 + 1e-9 or counts[label] == 1
    assert numbers(take_fraction(images, small, seed)) == numbers(few)


def test_a_fraction_depends_on_the_seed_and_is_spread_over_the_set():
    images = numbered([0] * 2000)
    chosen = numbers(take_fraction(images, 0.5, 1))
    assert chosen != numbers(take_fraction(images, 0.5, 2))
    assert len(chosen) == 1000 and 440 < sum(i < 1000 for i in chosen) < 560  # 5 standard deviations
    assert numbers(take_fraction(images, 1)) == list(range(2000))


def test_classes_are_numbered_in_the_requested_order():
    labels = [0, 3, 1, 2, 3, 0]
    part = take_classes(numbered(labels), ["dog", "ant"])
    assert numbers(part) == [0, 1, 4, 5] and part.labels.tolist() == [1, 0, 0, 1] and part.classes == ("dog", "ant")


def test_narrowing_takes_a_fraction_of_the_training_images_only():
    data = from_splits("numbers", numbered([0, 1, 2, 3] * 10), numbered([0, 1, 2, 3] * 5))
    part = narrow(data, classes=2, fraction=0.1)
    assert part.classes == ("ant", "bee") and sorted(part.train.labels.tolist()) == [0, 1] and len(part.test) == 10
    assert narrow(data).train is data.train


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"classes": 5}, "expected 1 to 4"),
        ({"classes": 0}, "expected 1 to 4"),
        ({"classes": True}, "expected 1 to 4"),
        ({"classes": []}, "list of names"),
        ({"classes": "ant"}, "list of names"),
        ({"classes": ["ants"]}, "did you mean 'ant'"),
        ({"classes": [["ant"]]}, "no class"),
        ({"classes": ["ant", "ant"]}, "each class once"),
        ({"fraction": 0}, "above 0"),
        ({"fraction": 1.5}, "up to 1"),
        ({"fraction": float("nan")}, "up to 1"),
        ({"fraction": "2%"}, "0.02"),
        ({"fraction": True}, "expected a number"),
        ({"seed": "x"}, "integer"),
    ],
)
def test_invalid_subsets_raise(given_settings, message):
    with pytest.raises(VitlabError, match=message):
        narrow(from_splits("numbers", numbered([0, 1]), numbered([0, 1])), **given_settings)


def test_a_fraction_of_a_set_without_training_images_is_refused():
    with pytest.raises(VitlabError, match="evaluation only"):
        narrow(from_splits("numbers", None, numbered([0, 1])), fraction=0.5)
