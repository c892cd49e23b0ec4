import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.core.anatomy import TokenLayout
from vitlab.modules.spatial_smoothing import SpatialSmoothing


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2))
def test_is_a_box_blur_with_repeated_border(h, w, prefix):
    x = torch.randn(2, prefix + h * w, 3, dtype=torch.float64)
    y = SpatialSmoothing(TokenLayout((h, w), prefix=prefix))(x)
    assert torch.equal(y[:, :prefix], x[:, :prefix])
    for i in range(h):
        for j in range(w):
            below, right = min(i + 1, h - 1), min(j + 1, w - 1)
            places = [(i, j), (below, j), (i, right), (below, right)]
            mean = sum(x[:, prefix + a * w + b] for a, b in places) / 4
            torch.testing.assert_close(y[:, prefix + i * w + j], mean)


def test_keeps_constants_and_removes_the_checkerboard():
    part = SpatialSmoothing(TokenLayout((4, 4)))
    assert torch.equal(part(torch.ones(1, 16, 1)), torch.ones(1, 16, 1))
    checks = torch.tensor([[(-1.0) ** (i + j) for j in range(4)] for i in range(4)])
    blurred = part(checks.reshape(1, 16, 1)).reshape(4, 4)
    assert torch.equal(blurred[:3, :3], torch.zeros(3, 3))
