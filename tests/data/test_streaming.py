from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.functional import pil_to_tensor

from vitlab.data import streaming
from vitlab.data.folders import open_folder
from vitlab.data.images import UNLABELLED, ImageArray
from vitlab.data.streaming import ImageStream

HALF = (0.5, 0.5, 0.5)


def array(count: int) -> ImageArray:
    pixels = torch.randint(0, 256, (count, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return ImageArray(pixels, torch.arange(count) % 3, ("a", "b", "c"))


def folder(root: Path, count: int) -> Path:
    for i in range(count):
        place = root / "abc"[i % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), 3 * i, np.uint8)).save(place / f"{i:03}.png")
    return root


def small_pixels(image: Image.Image) -> torch.Tensor:
    return pil_to_tensor(image.resize((4, 4)))


def gathered(stream: ImageStream) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = zip(*stream, strict=True)
    return torch.cat(images), torch.cat(labels)


@pytest.mark.parametrize("processes", [0, 2])
def test_batches_are_the_images_in_order_normalised(processes: int) -> None:
    images = array(10)
    stream = ImageStream(images, pil_to_tensor, HALF, (0.25,) * 3, 4, (2, 0, 1), processes=processes)
    found, labels = gathered(stream)
    assert torch.allclose(found, (images.images / 255 - 0.5) / 0.25, atol=1e-6)
    assert labels.tolist() == [(2, 0, 1)[label] for label in images.labels.tolist()]
    assert len(stream) == 3


def test_processes_share_the_images() -> None:
    images = array(11)
    shares = [ImageStream(images, pil_to_tensor, HALF, HALF, 2, range(3), rank=r, world=3) for r in range(3)]
    assert sorted(label for share in shares for label in gathered(share)[1].tolist()) == sorted(images.labels.tolist())
    assert torch.equal(gathered(shares[1])[1], images.labels[1::3])


def test_without_a_match_no_image_has_a_label() -> None:
    assert set(gathered(ImageStream(array(5), pil_to_tensor, HALF, HALF))[1].tolist()) == {UNLABELLED}


def test_unreadable_images_are_skipped_in_every_pass(tmp_path: Path) -> None:
    root = folder(tmp_path, 9)
    (root / "b" / "004.png").write_bytes(b"no image")
    stream = ImageStream(open_folder(root).test, small_pixels, HALF, HALF, 2, range(3), processes=0)
    with pytest.warns(UserWarning, match=r"cannot read .*004.png"):
        first = gathered(stream)
    assert len(first[1]) == 8
    assert torch.equal(gathered(stream)[0], first[0])


def test_a_large_set_is_not_cached_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    decoded = []

    def transform(image: Image.Image) -> torch.Tensor:
        decoded.append(1)
        return pil_to_tensor(image)

    images = open_folder(folder(tmp_path, 12)).test
    small = ImageStream(images, transform, HALF, HALF, 2, range(3), processes=0)
    assert torch.equal(gathered(small)[0], gathered(small)[0]) and len(decoded) == 12, "decoded once"
    monkeypatch.setattr(streaming, "_CACHE_BYTES", 3 * 2 * 48)  # three batches
    large = ImageStream(images, transform, HALF, HALF, 2, range(3), processes=0)
    alive = []
    for _ in large:
        gc.collect()
        alive.append(sum(isinstance(o, torch.Tensor) and o.dtype == torch.uint8 for o in gc.get_objects()))
    assert alive[-1] <= alive[1], "memory does not grow with the number of batches"
    gathered(large)
    assert len(decoded) == 12 + 24, "decoded in each pass"
