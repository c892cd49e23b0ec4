"""Resized and flipped images: pixels, boxes and masks stay together."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchvision.ops import masks_to_boxes

from vitlab.data.detection import Annotated
from vitlab.data.detection_transform import flipped, resized, resized_size


def rectangle(size: tuple[int, int], box: tuple[int, int, int, int], crowd: bool = False) -> Annotated:
    """A white rectangle on black, annotated."""
    mask = torch.zeros(1, *size, dtype=torch.uint8)
    mask[0, box[1] : box[3], box[0] : box[2]] = 1
    boxes, area = torch.tensor([box]).float(), mask.sum().float()[None]
    return Annotated(255 * mask.expand(3, -1, -1), boxes, torch.tensor([2]), mask, area, torch.tensor([crowd]))


def tight(masks: Tensor) -> Tensor:
    return masks_to_boxes(masks) + torch.tensor([0, 0, 1, 1])


@given(st.integers(8, 2000), st.integers(8, 2000), st.integers(8, 900), st.integers(900, 1500))
def test_the_shorter_side_has_the_length_unless_the_longer_would_be_too_long(
    h: int, w: int, side: int, most: int
) -> None:
    new = resized_size((h, w), side, most)
    assert max(new) <= most + 1 and min(new) <= side
    assert min(new) == side or max(new) == most
    assert abs(new[0] / new[1] - h / w) <= 1.0 * (h / w) * (1 / min(new))


def test_boxes_and_masks_follow_the_pixels() -> None:
    small = resized(rectangle((40, 60), (12, 8, 36, 28)), 20, 100)
    assert small.pixels.shape == (3, 20, 30)
    assert torch.equal(small.boxes, torch.tensor([[6.0, 4, 18, 14]]))
    assert torch.equal(tight(small.masks), small.boxes)
    assert torch.equal((small.pixels[0] > 127).to(torch.uint8), small.masks[0])
    mirror = flipped(small)
    assert torch.equal(mirror.boxes, torch.tensor([[12.0, 4, 24, 14]]))
    assert torch.equal(tight(mirror.masks), mirror.boxes)
    for one, two in zip(flipped(mirror), small, strict=True):
        assert torch.equal(one, two)


def test_an_image_of_the_size_is_not_changed() -> None:
    image = rectangle((32, 32), (4, 4, 20, 20))
    same = resized(image, 32, 32)
    assert torch.equal(same.pixels, image.pixels) and torch.equal(same.masks, image.masks)


def test_crowds_are_omitted_and_boxes_are_clipped() -> None:
    assert len(resized(rectangle((32, 32), (4, 4, 20, 20), crowd=True), 32, 32).labels) == 0
    image = rectangle((32, 32), (4, 4, 20, 20))
    beyond = Annotated(
        image.pixels, torch.tensor([[-3.0, 4, 40, 20]]), image.labels, image.masks, image.areas, image.crowd
    )
    assert resized(beyond, 32, 32).boxes.tolist() == [[0, 4, 32, 20]]
    outside = Annotated(
        image.pixels, torch.tensor([[33.0, 4, 40, 20]]), image.labels, image.masks, image.areas, image.crowd
    )
    assert len(resized(outside, 32, 32).boxes) == 0
