import math

import pytest
import torch

from vitlab.core.errors import VitlabError
from vitlab.modules.squeeze_excite import SqueezeExcite


def test_follows_the_equation_channel_by_channel():
    torch.manual_seed(0)
    part = SqueezeExcite(4, ratio=0.5).requires_grad_(False)
    x = torch.randn(1, 3, 4)
    y = part(x)
    mean = [sum(float(x[0, i, c]) for i in range(3)) / 3 for c in range(4)]
    hidden = [
        max(0.0, float(part.squeeze.bias[u]) + sum(float(part.squeeze.weight[u, c]) * mean[c] for c in range(4)))
        for u in range(2)
    ]
    for c in range(4):
        logit = float(part.expand.bias[c]) + sum(float(part.expand.weight[c, u]) * hidden[u] for u in range(2))
        torch.testing.assert_close(y[0, :, c], x[0, :, c] / (1 + math.exp(-logit)))


@pytest.mark.parametrize(("dim", "ratio", "hidden"), [(384, 0.25, 96), (384, 1.0, 384), (3, 0.1, 1)])
def test_hidden_width(dim, ratio, hidden):
    assert SqueezeExcite(dim, ratio=ratio).squeeze.out_features == hidden


@pytest.mark.parametrize("ratio", [0.0, -0.25, 1.5])
def test_refuses_ratios_out_of_range(ratio):
    with pytest.raises(VitlabError, match=f"ratio={ratio}"):
        SqueezeExcite(8, ratio=ratio)
