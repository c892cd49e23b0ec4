"""Augmentation and feeds of label maps: independent of workers, ranks and storage; geometry by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Segmentation
from vitlab.data import segmentation_feed
from vitlab.data.seeding import host_random
from vitlab.data.segmentation_augment import View, balanced, draw_view, jittered, viewed
from vitlab.data.segmentation_feed import PairFeed, PairStream
from vitlab.data.segmentation_pairs import ScenePairs

HALF = ((0.5,) * 3, (0.5,) * 3)
PAIRS = ScenePairs(range(10), (16, 24), objects=2)


def feed(**changes: object) -> PairFeed:
    settings = {"pairs": PAIRS, "size": (12, 12), "settings": Segmentation(), "mean": HALF[0], "std": HALF[1]}
    return PairFeed(**{**settings, "batch_size": 4, "processes": 0, **changes})  # type: ignore[arg-type]


def image(height: int, width: int) -> Tensor:
    values = torch.arange(height * width).remainder(251).to(torch.uint8)
    return values.view(1, 1, height, width).expand(1, 3, height, width)


def test_a_view_at_scale_one_is_a_slice() -> None:
    given = image(8, 10)
    pixels, labels = viewed(given, given[:, 0], [View(top=0.0, left=1.0)], (5, 6), 255)
    torch.testing.assert_close(pixels, given[:, :, :5, 4:].float())
    assert torch.equal(labels, given[:, 0, :5, 4:])


def test_a_flipped_view_is_the_mirrored_slice() -> None:
    given = image(8, 10)
    pixels, labels = viewed(given, given[:, 0], [View(top=0.0, left=0.0, flip=True)], (8, 6), 255)
    torch.testing.assert_close(pixels, given[..., :6].flip(-1).float())
    assert torch.equal(labels, given[:, 0, :, :6].flip(-1))


def test_a_small_image_is_padded_with_ignored_pixels() -> None:
    given = image(4, 4) // 2
    pixels, labels = viewed(given, given[:, 0], [View(top=0.0, left=1.0)], (6, 7), 255)
    inside = labels[0] != 255
    assert int(inside.sum()) == 16 and torch.equal(labels[0][inside], given[0, 0].flatten())
    assert not pixels[0, :, ~inside].any()


def test_scaling_is_torch_bilinear_interpolation() -> None:
    given = image(6, 8)
    pixels, labels = viewed(given, given[:, 0], [View(scale=2.0)], (12, 16), 255)
    expected = torch.nn.functional.interpolate(given.float(), scale_factor=2, mode="bilinear", align_corners=False)
    torch.testing.assert_close(pixels, expected)
    assert torch.equal(labels[0, ::2, ::2].sort().values, labels[0, ::2, ::2].sort().values)
    assert set(labels.unique().tolist()) <= set(given.unique().tolist())


def fitted(size: tuple[int, int], limits: tuple[int, int]) -> tuple[int, int]:
    """The largest size of the same shape within limits of the shorter and longer side, by bisection."""
    low, high = 0.0, 100.0
    for _ in range(80):
        middle = (low + high) / 2
        fits = min(size) * middle <= limits[0] and max(size) * middle <= limits[1]
        low, high = (middle, high) if fits else (low, middle)
    return round(size[0] * low), round(size[1] * low)


@pytest.mark.parametrize("size", [(6, 8), (20, 13), (5, 30), (30, 4), (12, 12)])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_the_base_size_is_within_its_limits(size: tuple[int, int], scale: float) -> None:
    """At scale 1 the crop is the whole resized image; at 0.5 it is half as large. The oracle is torch's resize."""
    given = image(*size)
    whole = fitted(size, (round(12 * scale), round(40 * scale)))
    pixels, labels = viewed(given, given[:, 0], [View(scale=scale)], whole, 255, base_size=(12, 40))
    expected = torch.nn.functional.interpolate(given.float(), whole, mode="bilinear", align_corners=False)
    torch.testing.assert_close(pixels, expected, atol=2e-3, rtol=1e-4)
    assert set(labels.unique().tolist()) <= set(given.unique().tolist())


def test_a_crop_with_a_dominating_class_is_redrawn() -> None:
    """Against a loop over slices, as in mmsegmentation: the first of ten crops that is balanced, else the eleventh."""
    generator = torch.Generator().manual_seed(0)
    ratio, side, found = 0.75, 6, []
    settings = Segmentation(cat_max_ratio=ratio, scale=(1.0, 1.0))
    for position in range(60):
        labels = torch.zeros(20, 30, dtype=torch.uint8)
        labels[14:, 22:] = torch.randint(1, 4, (6, 8), generator=generator).to(torch.uint8)
        labels[14:, :6] = 255
        drawn = draw_view(settings, 0.5, 0, 0, position)
        places = [(drawn.top, drawn.left), *drawn.others]
        assert len(places) == 11
        chosen = len(places) - 1
        for number, (top, left) in enumerate(places[:-1]):
            y, x = int(top * (20 - side) + 0.5), int(left * (30 - side) + 0.5)
            pixels = [value for value in labels[y : y + side, x : x + side].flatten().tolist() if value != 255]
            counts = [pixels.count(value) for value in set(pixels)]
            if len(counts) > 1 and max(counts) / sum(counts) < ratio:
                chosen = number
                break
        own = balanced(labels, drawn, (side, side), settings)
        assert (own.top, own.left) == places[chosen] and own.flip == drawn.flip
        found.append(chosen)
    assert {0, 10} < set(found)


def test_without_the_new_settings_the_views_are_those_of_earlier_versions() -> None:
    """The numbers in the order of earlier versions; other crops are drawn after them."""
    scale, top, left, mirrored, *colours = host_random("segmentation", 3, 1, 5).random(7).tolist()
    expected = View(0.5 + 1.5 * scale, top, left, mirrored < 0.5, *(1 + 0.25 * (2 * colour - 1) for colour in colours))
    assert draw_view(Segmentation(), 0.5, 3, 1, 5) == expected
    assert balanced(torch.zeros(4, 4, dtype=torch.uint8), expected, (2, 2), Segmentation()) == expected
    balanced_crops = draw_view(Segmentation(cat_max_ratio=0.75), 0.5, 3, 1, 5)
    assert replace(balanced_crops, others=()) == expected


def test_jitter_of_a_grey_image_by_hand() -> None:
    pixels = torch.tensor([0.2, 0.6]).view(1, 1, 1, 2).expand(1, 3, 1, 2)
    changed = jittered(pixels, [View(brightness=1.5, contrast=0.5, saturation=0.3)])
    # brightness: 0.3 and 0.9; contrast around their mean 0.6: 0.45 and 0.75; a grey image has no saturation
    torch.testing.assert_close(changed, torch.tensor([0.45, 0.75]).view(1, 1, 1, 2).expand(1, 3, 1, 2))


def test_draws_depend_on_the_key_only() -> None:
    settings = Segmentation(scale=(0.5, 2.0), jitter=0.2)
    views = [draw_view(settings, 0.5, 0, 3, position) for position in range(200)]
    assert views == [draw_view(settings, 0.5, 0, 3, position) for position in range(200)]
    assert all(0.5 <= view.scale <= 2 and 0.8 <= view.contrast <= 1.2 for view in views)
    assert 60 < sum(view.flip for view in views) < 140 and views[0] != draw_view(settings, 0.5, 0, 4, 0)


def test_resident_images_and_workers_give_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Segmentation(base_size=(20, 40), cat_max_ratio=0.75)
    resident = list(feed(settings=settings).epoch(2))
    monkeypatch.setattr(segmentation_feed, "_RESIDENT_BYTES", 0)
    for processes in (0, 2):
        for own, other in zip(feed(settings=settings, processes=processes).epoch(2), resident, strict=True):
            torch.testing.assert_close(own[0], other[0])
            assert torch.equal(own[1], other[1])
    assert len(resident) == 2 and resident[0][0].shape == (4, 3, 12, 12)


def test_ranks_share_the_batch_of_a_single_process() -> None:
    whole = list(feed().epoch(1))
    parts = [list(feed(rank=rank, world=2).epoch(1)) for rank in range(2)]
    for batch, first, second in zip(whole, *parts, strict=True):
        torch.testing.assert_close(batch[0][::2], first[0])
        assert torch.equal(batch[1][1::2], second[1])


def test_an_epoch_can_start_at_any_batch() -> None:
    (last,) = feed().epoch(0, start_batch=1)
    assert torch.equal(last[0], list(feed().epoch(0))[1][0])


def test_a_stream_has_every_image_once_over_ranks() -> None:
    batches = [list(PairStream(PAIRS, *HALF, 4, rank=rank, world=3, processes=0)) for rank in range(3)]
    assert [[len(images) for images, _ in rank] for rank in batches] == [[4], [3], [3]]
    pixels, labels = PAIRS[3]
    torch.testing.assert_close(batches[0][0][0][1], pixels.float() / 255 * 2 - 1)
    assert torch.equal(batches[0][0][1][1], labels)


def test_images_of_different_sizes_are_in_different_batches() -> None:
    mixed = Mixed([(8, 8), (8, 8), (8, 12), (8, 8)])
    assert [tuple(images.shape) for images, _ in PairStream(mixed, *HALF, 4, processes=0)] == [
        (2, 3, 8, 8),
        (1, 3, 8, 12),
        (1, 3, 8, 8),
    ]
    batches = list(feed(pairs=mixed, batch_size=2).epoch(0))
    assert [tuple(images.shape) for images, _ in batches] == [(2, 3, 12, 12)] * 2


class Mixed:
    fingerprint = "mixed"

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.sizes[index] == (0, 0):
            raise VitlabError("a.png has the label 9")
        return torch.zeros(3, *self.sizes[index], dtype=torch.uint8), torch.zeros(self.sizes[index], dtype=torch.uint8)


@pytest.mark.parametrize("processes", [0, 1])
def test_an_error_of_a_worker_is_one_line(processes: int) -> None:
    with pytest.raises(VitlabError) as caught:
        list(PairStream(Mixed([(8, 8), (0, 0)]), *HALF, processes=processes))
    assert str(caught.value) == "a.png has the label 9"


def test_subsets_keep_the_settings() -> None:
    few = PAIRS.subset([7, 2])
    assert len(few) == 2 and torch.equal(few[0][0], PAIRS[7][0]) and few.fingerprint != PAIRS.fingerprint
    assert replace(PAIRS, seed=1).fingerprint != PAIRS.fingerprint
