"""Scores from pixel counts against sets of pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.core.pixel_counts import class_iou, count_pixels, mean_class_accuracy, mean_iou, pixel_accuracy


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=30))
def test_scores_are_those_of_sets_of_pixels(pairs: list[tuple[int, int]]) -> None:
    """Six classes: 4 is never labelled, 5 neither labelled nor predicted."""
    labels, predicted = (np.array(each) for each in zip(*pairs, strict=True))
    confusion = np.zeros((6, 6), int)
    np.add.at(confusion, (labels, predicted), 1)
    counts = count_pixels(confusion)
    ious, recalls = [], []
    for k in range(6):
        truth, guess = ({i for i, pair in enumerate(pairs) if pair[side] == k} for side in (0, 1))
        both, either = len(truth & guess), len(truth | guess)
        assert counts[k].tolist() == [both, len(truth), len(guess)]
        assert class_iou(counts)[k] == both / either if either else math.isnan(class_iou(counts)[k])
        ious += [both / either] if either else []
        recalls += [both / len(truth)] if truth else []
    assert mean_iou(counts) == pytest.approx(sum(ious) / len(ious))
    assert mean_class_accuracy(counts) == pytest.approx(sum(recalls) / len(recalls))
    assert pixel_accuracy(counts) == pytest.approx(np.mean(labels == predicted))


def test_counts_of_several_conditions_are_scored_one_by_one() -> None:
    confusions = np.random.default_rng(0).integers(0, 9, (2, 3, 4, 4))
    counts = count_pixels(confusions)
    assert counts.shape == (2, 3, 4, 3)
    for index in np.ndindex(2, 3):
        assert mean_iou(counts)[index] == pytest.approx(float(mean_iou(count_pixels(confusions[index]))))
