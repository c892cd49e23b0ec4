"""The conditions of the segmentation benchmarks: the perturbations of CB Table 9 and the corruptions of Cityscapes-C.

Shape legend: B batch, C channels, h w pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.corruptions import DETERMINISTIC, corrupt
from vitlab.corruptions.blur import gaussian_blur
from vitlab.corruptions.noise import gaussian_noise, shot_noise
from vitlab.corruptions.randomness import Randomness
from vitlab.stress_tests.shared.segmentation_evaluation import Perturbation

#: Cityscapes-C by group. The paper says only "16 corruption types … 4 categories: noise, blur, weather, and digital"
#: (TAPADL, Sec. 4.2). Names and groups are those of its released evaluation, which follows FAN's. FAN's has brightness
#: under weather, and also pixelate, zoom blur and elastic transforms; elastic transforms move the labelled objects.
CITYSCAPES_C: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("motion_blur", "defocus_blur", "glass_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "spatter"),
    "digital": ("brightness", "contrast", "saturate", "jpeg_compression"),
}


@dataclass(frozen=True)
class Condition:
    """One perturbation of the images at one strength.

    Args:
        group, corruption: for example `noise`, `gaussian_noise`.
        strength: the number in the name, for example 5 in `gaussian_noise 5`.
        apply: maps pixels (B, C, h, w), a seed and the indices of the images to pixels.
        random: whether the result depends on the seed.
    """

    group: str
    corruption: str
    strength: float
    apply: Callable[[Tensor, int, Sequence[int]], Tensor]
    random: bool

    @property
    def name(self) -> str:
        """The corruption and the strength."""
        return f"{self.corruption} {self.strength:g}"

    def perturbation(self, seed: int) -> Perturbation:
        """Returns the perturbation with a fixed seed."""
        return lambda pixels, indices: self.apply(pixels, seed, indices)


def context_broadcasting(photons: float = 255) -> list[Condition]:
    """Shot noise, Gaussian noise with σ 5 and 10, Gaussian blur with σ 1 and 2 (CB, Table 9).

    The paper gives no unit for the noise and no strength for the shot noise. σ = 5 is plausible only in the 256 levels
    of an 8-bit image. Shot noise is implemented as a Poisson draw of that level, 255 photons at white: σ is then about
    10 at mid-grey. In the paper, ViT-S has the same mIoU, 40.22, under shot noise and under Gaussian noise with σ = 10.

    >>> [condition.name for condition in context_broadcasting()][:3]
    ['shot_noise 255', 'gaussian_noise 5', 'gaussian_noise 10']
    """

    def noisy(function: Callable[..., Tensor], strength: float, pixels: Tensor, seed: int, indices: Any) -> Tensor:
        return function(pixels, Randomness.of(seed, function.__name__, 0, indices, pixels.device), strength)

    def blurred(sigma: float, pixels: Tensor, *_: Any) -> Tensor:
        return gaussian_blur(pixels, sigma)

    shot = Condition("noise", "shot_noise", photons, partial(noisy, shot_noise, photons), True)
    noise = [
        Condition("noise", "gaussian_noise", sigma, partial(noisy, gaussian_noise, sigma / 255), True)
        for sigma in (5, 10)
    ]
    return [shot, *noise, *(Condition("blur", "gaussian_blur", s, partial(blurred, s), False) for s in (1, 2))]


def cityscapes_c(severities: int | Sequence[int] | None = None) -> list[Condition]:
    """The 16 corruptions of Cityscapes-C (Michaelis et al. 2019; TAPADL, Sec. 4.2).

    Args:
        severities: from 1 to 5. Default: those of the released evaluation, 1 to 5, for noise 1 to 3.

    >>> len(cityscapes_c()), len(cityscapes_c([5]))
    (72, 16)
    """

    def apply(name: str, severity: int, pixels: Tensor, seed: int, indices: Sequence[int]) -> Tensor:
        return corrupt(pixels, name, severity, seed=seed, indices=indices)

    levels = [] if severities is None else [severities] if isinstance(severities, int) else list(severities)
    if severities is not None and (not levels or len({*levels}) < len(levels) or {*levels} - {1, 2, 3, 4, 5}):
        raise VitlabError(
            f"invalid severities={severities} for cityscapes_c; expected distinct integers from 1 to 5, or None"
        )
    return [
        Condition(group, name, severity, partial(apply, name, severity), name not in DETERMINISTIC)
        for group, names in CITYSCAPES_C.items()
        for name in names
        for severity in levels or ((1, 2, 3) if group == "noise" else (1, 2, 3, 4, 5))
    ]
