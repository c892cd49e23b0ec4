"""The chain of augmentation: order, reproducibility, and one compiled graph."""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms import functional as tv

from vitlab.core.recipe import Augment
from vitlab.data.augment import apply_draws, draw_augment, normalise
from vitlab.data.cropping import crop_and_flip
from vitlab.data.device_copy import per_channel
from vitlab.data.erasing import erase
from vitlab.data.mixing import draw_mixes
from vitlab.data.randaugment import apply_layer
from vitlab.data.resident import prepare
from vitlab.data.scenes import MEAN, STD, draw_scenes

FULL = Augment(randaugment="rand-m9-n2-mstd0.5-inc1", erasing=0.25, mixup=0.8, cutmix=1.0)
CPU = torch.device("cpu")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def augmented(images: torch.Tensor, seed: int = 0) -> torch.Tensor:
    draws = draw_augment(len(images), (3, 32, 32), FULL, seeded(seed))
    return apply_draws(images, draws, per_channel(MEAN, CPU), per_channel(STD, CPU))


def test_steps_are_in_timms_order() -> None:
    images = draw_scenes(24, size=32).images
    draws = draw_augment(24, (3, 32, 32), FULL, seeded())
    fill = torch.tensor([round(255 * mean) for mean in MEAN], dtype=torch.float32)
    expected = crop_and_flip(images, draws.crops)
    for layer in draws.layers:
        expected = apply_layer(expected, layer, True, fill)
    normalised = tv.normalize(expected.float() / 255, MEAN, STD)
    assert len(draws.layers) == 2
    assert torch.equal(augmented(images), erase(normalised, draws.erasing))


@pytest.mark.parametrize("crop", ["pad", "resized", "none"])
def test_settings_turn_steps_off(crop: str) -> None:
    draws = draw_augment(4, (3, 32, 32), Augment(crop=crop, flip=0.0), seeded())
    assert (draws.windows is not None) == (crop == "resized") and (draws.crops is not None) == (crop == "pad")
    assert draws.layers == () and draws.erasing is None


def test_normalisation_is_torchvisions() -> None:
    images = draw_scenes(2, size=32).images
    expected = tv.normalize(images.float() / 255, MEAN, STD)
    assert torch.equal(normalise(images, per_channel(MEAN, CPU), per_channel(STD, CPU)), expected)


def test_same_generator_same_bits() -> None:
    images = draw_scenes(24, size=32).images
    kept = images.clone()
    first, again, other = (augmented(images, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(images, kept)


@pytest.mark.parametrize("settings", [FULL, Augment(crop="resized", randaugment="rand-m5")])
def test_a_chunk_compiles_into_one_graph(settings: Augment) -> None:
    images = draw_scenes(12, size=32).images
    draws, mixes = draw_augment(12, (3, 32, 32), settings, seeded()), draw_mixes(settings, (32, 32), 0, 0, range(3))
    arguments = (images, draws, mixes, per_channel(MEAN, CPU), per_channel(STD, CPU), torch.bfloat16)
    compiled = torch.compile(prepare, fullgraph=True, dynamic=False, backend="eager")
    assert torch.equal(compiled(*arguments), prepare(*arguments))
