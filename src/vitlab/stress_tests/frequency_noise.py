"""Accuracy drop against the frequency of band-limited noise (HDVW Fig. 2b).

White noise is band-limited to a ring around the frequency f and added to the image:

    x + F⁻¹( F(δ) · M_f ),   δ ~ N(0, strength²)  or  δ = strength · sign(N(0, 1))

The paper does not state the strength. Adding the noise to pixels in [0, 1], and a strength of 0.15, are our choice:
the released code adds the noise to normalised inputs.

Shape legend: B batch, C channels, h w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from vitlab.core.bounds import ImageCount, Length, Positive, Range, Seed, Weight
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.corruptions.randomness import Randomness
from vitlab.stress_tests.shared.pixel_evaluation import (
    Perturbation,
    PixelBatch,
    accuracies,
    evaluate_perturbations,
    numbers,
    result,
)

CARD = Card(
    title="Accuracy drop against the frequency of noise",
    paper="HDVW Fig. 2b; the strength 0.15 and pixel space are our choice",
    cost="1 + frequencies forwards, 12 by default",
    inputs="labelled images",
    passes="several",
    higher_is_better=False,
)

Noise = Literal["gaussian", "sign"]
Ring = Literal["square", "round"]
Reading = Literal["half", "full"]
#: In units of π; the diagonal has √2.
Frequency = Annotated[float, Range(0, math.sqrt(2))]
FREQUENCIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def ring_mask(
    size: tuple[int, int], frequency: float, window: float = 0.1, ring: Ring = "square", reading: Reading = "half"
) -> Tensor:
    """Returns a mask of the frequencies of `fft2` in the ring, (h, w) bool.

    Args:
        size: (h, w).
        frequency: f, in units of π; 1 is the highest along an axis.
        window: width of the ring in units of π; 0.1 in the paper.
        ring: `square` compares max(|ω_y|, |ω_x|) with f, as the released code does; `round` compares √(ω_y² + ω_x²).
        reading: the window is ambiguous in the paper. `half` is [f − window, f + window]; `full` is half as wide.

    The ring is symmetric, so the band-limited noise is real. The square of the released code lacks the rows and columns
    of +f.

    >>> ring_mask((4, 4), 0.5, 0.1).int()  # frequencies 0, ½, 1, −½
    tensor([[0, 1, 0, 1],
            [1, 1, 0, 1],
            [0, 0, 0, 0],
            [1, 1, 0, 1]], dtype=torch.int32)
    """
    half = window if reading == "half" else window / 2
    y, x = (2 * torch.fft.fftfreq(side, dtype=torch.float64).abs() for side in size)
    distance = torch.maximum(y[:, None], x) if ring == "square" else torch.hypot(y[:, None], x)
    return (distance - frequency).abs() <= half + 1e-9


def band_limited(noise: Tensor, mask: Tensor) -> Tensor:
    """Returns F⁻¹(F(δ) · M), real: noise (B, C, h, w) restricted to the frequencies of a symmetric mask (h, w).

    >>> constant = torch.zeros(2, 2, dtype=torch.bool)
    >>> constant[0, 0] = True
    >>> band_limited(torch.tensor([[[[4.0, 0.0], [0.0, 0.0]]]]), constant)  # only the mean
    tensor([[[[1., 1.],
              [1., 1.]]]])
    """
    filtered: Tensor = torch.fft.ifft2(torch.fft.fft2(noise) * mask).real
    return filtered


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    frequencies: Frequency | Annotated[Sequence[Frequency], Length(1, 1000, distinct=True)] = FREQUENCIES,
    strength: Weight = 0.15,
    noise: Noise = "gaussian",
    ring: Ring = "square",
    window: Positive = 0.1,
    reading: Reading = "half",
    clamp: bool = True,
    seed: Seed = 0,
    images: ImageCount | None = None,
) -> Measurement:
    """Measure the accuracy under band-limited noise, for each of several frequencies.

    Args:
        model: a classifier; its state is restored on exit.
        batches: yields (images, targets), in the same order in each iteration; iterated once per condition.
        frequencies: centres of the bands, in units of π.
        strength: standard deviation of the noise before filtering, for pixels in [0, 1]. 0.15 and pixel space are our
            choice; the released code adds noise of 0.007, or 0.7, to normalised inputs. The energy of a ring is
            proportional to its number of frequencies, as in the released code: rings of high frequency have more.
        noise: `gaussian` (the paper) or `sign` (its code).
        ring, window, reading: see `ring_mask`.
        clamp: whether pixels are clamped to [0, 1]; the released code does not clamp.
        seed: seed of the noise, combined with the index of the image. All bands are filtered from the same noise.
        images: number of images, from the start; default all.

    Returns:
        `drop` (clean minus noisy accuracy) and its paired `drop_error`, `accuracy`, `standard_error` (frequency),
        `clean_accuracy`, `clean_error` (). Frequencies are in units of π.
    """
    settings: dict[str, Any] = {"strength": strength, "noise": noise, "ring": ring, "window": window}
    settings |= {"reading": reading, "clamp": clamp, "seed": seed}
    frequencies = numbers(frequencies)
    perturbations = [(f"frequency {frequency} π", _perturbation(frequency, **settings)) for frequency in frequencies]
    outcome = evaluate_perturbations(model, batches, "frequency_noise", perturbations, images)
    axes = {"frequency": [round(float(frequency), 6) for frequency in frequencies]}
    settings |= {"frequencies": axes["frequency"], "images": images}
    return result("frequency_noise", model, accuracies(outcome), axes, settings, outcome.about)


def _perturbation(
    frequency: float,
    *,
    strength: float,
    noise: Noise,
    ring: Ring,
    window: float,
    reading: Reading,
    clamp: bool,
    seed: int,
) -> Perturbation:
    def perturbation(batch: PixelBatch) -> Tensor:
        size = (batch.pixels.shape[2], batch.pixels.shape[3])
        mask = ring_mask(size, frequency, window, ring, reading).to(batch.pixels.device)
        if not bool(mask.any()):
            raise VitlabError(
                f"frequency_noise: {size[0]}x{size[1]} images have no frequency within window={window} (reading "
                f"{reading!r}) of {frequency:g} π; increase the window"
            )
        random = Randomness.of(seed, "frequency_noise", 0, batch.indices, batch.pixels.device)
        draws = random.normal(*batch.pixels.shape[1:])
        draws = strength * (draws.sign() if noise == "sign" else draws)
        noisy = batch.pixels + band_limited(draws, mask)
        return noisy.clamp(0, 1) if clamp else noisy

    return perturbation
