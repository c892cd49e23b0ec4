"""The worst images, against a loop over images."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vitlab.stress_tests.shared.worst_images import choose


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 6), st.data())
def test_images_wrong_at_most_severities_come_first(images: int, data: st.DataObject) -> None:
    correct = data.draw(arrays(bool, (2, 3, images)))
    clean = data.draw(arrays(bool, images))
    places, levels = choose(correct.astype(float), clean.astype(float), 3)
    for row in range(2):
        wrong = [int((~correct[row, :, i]).sum()) for i in range(images)]
        expected = sorted((i for i in range(images) if wrong[i]), key=lambda i: (-(wrong[i] + 3 * bool(clean[i])), i))[
            :3
        ]
        assert places[row].tolist() == expected + [-1] * (3 - len(expected))
        firsts = [next(s for s in range(3) if not correct[row, s, i]) for i in expected]
        assert levels[row].tolist() == firsts + [-1] * (3 - len(firsts))


def test_no_wrong_image() -> None:
    places, levels = choose(np.ones((1, 2, 4)), np.ones(4))
    assert (places == -1).all() and (levels == -1).all()
