from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitlab
from cases.attention import ATTENTION, dense, maps, pictures, sharp
from vitlab.instruments.token_overfocus import gini, top_share


def gini_by_pairs(values):
    """Half the mean absolute difference over the mean."""
    differences = sum(abs(a - b) for a in values for b in values)
    return differences / (2 * len(values) * sum(values))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=12), st.floats(0.01, 1))
def test_gini_and_top_share_by_definition(values, share):
    largest = torch.tensor(sorted(values, reverse=True), dtype=torch.float64)
    assert gini(largest).item() == pytest.approx(gini_by_pairs(values), abs=1e-9)
    lorenz = np.concatenate([[0], np.cumsum(sorted(values, reverse=True))]) / sum(values)
    expected = np.interp(share * len(values), np.arange(len(values) + 1), lorenz)
    assert top_share(largest, share).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_against_the_dense_map(case):
    model, images = sharp(case), pictures(case)
    found = vitlab.measure("token_overfocus", model, [images], shares=(0.1, 0.5))
    assert found.axes["share"] == (0.1, 0.5)
    for i, (weights, queries, keys) in enumerate(maps(model, images).values()):
        full = dense(weights, queries, keys)
        received = full.sum(2) / full.sum((2, 3))[..., None]  # (B, H, M)
        for head in range(received.shape[1]):
            columns = [sorted(image[head].tolist(), reverse=True) for image in received]
            assert found.values["top1"][i, head] == pytest.approx(np.mean([c[0] for c in columns]), rel=1e-4)
            assert found.values["gini"][i, head] == pytest.approx(
                np.mean([gini_by_pairs(c) for c in columns]), rel=1e-3
            )
            half = np.mean([np.interp(0.5 * len(c), range(len(c) + 1), np.cumsum([0, *c])) for c in columns])
            assert found.values["top"][1, i, head] == pytest.approx(half, rel=1e-4)
        mean = [sorted(image.mean(0).tolist(), reverse=True) for image in received]
        assert found.values["top1_of_mean"][i] == pytest.approx(np.mean([c[0] for c in mean]), rel=1e-4)
        assert found.values["gini_of_mean"][i] == pytest.approx(np.mean([gini_by_pairs(c) for c in mean]), rel=1e-3)


@pytest.mark.parametrize("shares", [(), (0.0,), (1.5,)])
def test_invalid_shares_raise(shares):
    case = ATTENTION[0]
    with pytest.raises(vitlab.VitlabError, match="shares"):
        vitlab.measure("token_overfocus", sharp(case), [pictures(case)], shares=shares)
