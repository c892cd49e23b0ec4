import pytest
import torch
from torch.nn import functional as F

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.modules.local_pooling import AveragePooling, ConvolutionPooling

LAYOUT = TokenLayout((4, 3), prefix=2)


def maps(x):
    return x[:, 2:].transpose(1, 2).reshape(len(x), -1, 4, 3)


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_average_pooling_equals_torch(kernel):
    x = torch.randn(2, 14, 5, dtype=torch.float64)
    y = AveragePooling(LAYOUT, kernel=kernel)(x)
    expected = F.avg_pool2d(maps(x), kernel, stride=1, padding=kernel // 2)
    torch.testing.assert_close(maps(y), expected)
    assert torch.equal(y[:, :2], x[:, :2])


def test_convolution_pixel_by_pixel():
    part = ConvolutionPooling(2, LAYOUT, kernel=3).double()
    weight = part.convolution.weight
    x = torch.randn(1, 14, 2, dtype=torch.float64)
    y, image = maps(part(x)), maps(x)
    for i in range(4):
        for j in range(3):
            total = torch.zeros(2, dtype=torch.float64)
            for a in range(-1, 2):
                for b in range(-1, 2):
                    if 0 <= i + a < 4 and 0 <= j + b < 3:
                        total = total + weight[:, :, a + 1, b + 1] @ image[0, :, i + a, j + b]
            torch.testing.assert_close(y[0, :, i, j], total)
    assert torch.equal(part(x)[:, :2], x[:, :2])


@pytest.mark.parametrize(("kernel", "total"), [(3, 79_376_424), (5, 130_756_648)])
def test_convolutions_give_the_paper_s_sizes(kernel, total):
    """FAN-B-Hybrid has 50,475,048 parameters; 16 blocks, 448 channels. A bias would add 7,168."""
    with torch.device("meta"):
        part = ConvolutionPooling(448, TokenLayout((14, 14)), kernel=kernel)
    assert 50_475_048 + 16 * sum(weight.numel() for weight in part.parameters()) == total


@pytest.mark.parametrize("kernel", [0, 2, -3])
def test_refuses_kernels_without_a_centre(kernel):
    with pytest.raises(VitlabError, match=f"kernel={kernel}"):
        AveragePooling(LAYOUT, kernel=kernel)
    with pytest.raises(VitlabError, match=f"kernel={kernel}"):
        ConvolutionPooling(2, LAYOUT, kernel=kernel)
