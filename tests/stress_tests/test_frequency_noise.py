"""Rings against loops, the spectrum of the noise by FFT, and a model that sees one band only."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitlab
from cases.stress import scene_batches, scenes_model
from vitlab.core.batches import Batches
from vitlab.stress_tests.frequency_noise import band_limited, ring_mask


@settings(deadline=None, max_examples=20)
@given(
    size=st.tuples(st.integers(4, 17), st.integers(4, 17)),
    frequency=st.floats(0, 1),
    window=st.floats(0.05, 0.4),
    ring=st.sampled_from(["square", "round"]),
    reading=st.sampled_from(["half", "full"]),
)
def test_energy_only_inside_the_ring(size, frequency, window, ring, reading) -> None:
    noise = torch.randn(2, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = ring_mask(size, frequency, window, ring, reading)
    found = np.fft.fft2(band_limited(noise, mask).numpy())
    spectrum = np.fft.fft2(noise.numpy())
    half = window if reading == "half" else window / 2
    for i in range(size[0]):
        for j in range(size[1]):
            y, x = (min(k, side - k) * 2 / side for k, side in zip((i, j), size, strict=True))
            distance = max(y, x) if ring == "square" else math.hypot(y, x)
            if abs(abs(distance - frequency) - half) < 1e-6:
                continue  # on the edge: either will do
            inside = abs(distance - frequency) < half
            np.testing.assert_allclose(found[..., i, j], spectrum[..., i, j] if inside else 0, atol=1e-9)


def test_rings_cover_all_frequencies_once() -> None:
    """Windows of ±0.1 at 0.1, 0.3, …, 0.9 cut the square into rings; 21 × 21 has no frequency on an edge."""
    count = sum(ring_mask((21, 21), f / 10, 0.1).int() for f in (1, 3, 5, 7, 9))
    assert (count == 1).all()


class Nyquist(torch.nn.Module):
    """Sees only the highest horizontal frequency: the class is whether its amplitude is above a threshold."""

    def forward(self, x):
        signs = torch.tensor([1.0, -1.0]).repeat(x.shape[3] // 2)
        amplitude = (x * signs).mean((1, 2, 3)).abs()
        return torch.stack([torch.full_like(amplitude, 1e-4), amplitude], 1)


@pytest.mark.parametrize("noise", ["gaussian", "sign"])
def test_only_frequencies_that_a_model_uses_lower_its_accuracy(noise) -> None:
    batches = Batches([(torch.full((10, 3, 16, 16), 0.5), torch.zeros(10, dtype=torch.long))], (0.0,) * 3, (1.0,) * 3)
    settings = {"frequencies": (0, 0.5, 1), "noise": noise, "clamp": False}
    found = vitlab.stress("frequency_noise", Nyquist(), batches, **settings).values
    assert found["drop"][:2].tolist() == [0, 0] and found["drop"][2] > 0.7
    assert vitlab.stress("frequency_noise", Nyquist(), batches, strength=0, **settings).values["drop"][2] == 0


def test_a_single_frequency_is_accepted() -> None:
    model = scenes_model()
    one = vitlab.stress("frequency_noise", model, scene_batches(model), frequencies=0.5)
    assert one.axes["frequency"] == (0.5,) and one.values["drop"].shape == (1,)


def test_noise_stays_in_pixels_by_default() -> None:
    seen = []

    class Watch(torch.nn.Module):
        def forward(self, x):
            seen.append(x)
            return x.mean((2, 3))

    batches = Batches([(torch.ones(4, 3, 16, 16), torch.zeros(4, dtype=torch.long))], (0.0,) * 3, (1.0,) * 3)
    for clamp in (True, False):
        vitlab.stress("frequency_noise", Watch(), batches, frequencies=[0.5], clamp=clamp)
        assert bool(seen[-1].max() > 1.01) is not clamp


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": "signs"}, "did you mean 'sign'"),
        ({"ring": "oval"}, "'square' or 'round'"),
        ({"reading": "both"}, "'half' or 'full'"),
        ({"frequencies": (2,)}, "a number from 0 to 1.414"),
        ({"frequencies": (0.5, 0.5)}, "distinct such values"),
        ({"frequencies": None}, "expected a number"),
        ({"strength": -1}, "strength=-1"),
        ({"frequencies": (0.53,), "window": 0.01}, "increase the window"),
    ],
)
def test_mistakes(settings, message) -> None:
    model = scenes_model()
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.stress("frequency_noise", model, scene_batches(model), **settings)
