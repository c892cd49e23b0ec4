import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitlab.corruptions.boxes import boxes


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 90), st.floats(0.1, 1))
def test_rows_are_averaged_and_repeated_as_in_pil(size, share):
    count = max(1, int(size * share))
    levels = np.random.default_rng(size).integers(0, 256, (size, 3)).astype(np.uint8)
    small = Image.fromarray(levels).resize((3, count), Image.BOX)
    axis = boxes(size, count, "cpu")
    means = axis.means(torch.from_numpy(levels)[None, None])
    assert np.abs(means[0, 0].numpy() - np.asarray(small, dtype=np.float32)).max() <= 0.5 + 1e-3
    again = axis.repeat(torch.from_numpy(np.array(small))[None, None])[0, 0]
    np.testing.assert_array_equal(again.numpy(), np.asarray(small.resize((3, size), Image.NEAREST)))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 90), st.floats(0.1, 1))
def test_levels_and_floats_have_the_same_means_and_every_box_has_a_pixel(size, share):
    axis = boxes(size, max(1, int(size * share)), "cpu")
    levels = torch.randint(0, 256, (2, 3, size, 4), dtype=torch.uint8)
    assert axis.means(levels).equal(axis.means(levels.float()))
    assert (axis.counts >= 1).all() and (axis.owners.diff() >= 0).all()
