"""Clean images and their corrupted versions, for instruments that compare a model on both.

Shape legend: B batch, C channels, h w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.corruptions.apply import corrupt_pixels
from vitlab.corruptions.noise import gaussian_noise
from vitlab.corruptions.randomness import Randomness
from vitlab.preprocessing import normalisation_of


def clean_and_corrupted(
    batches: Iterable[Any],
    corrupt: Callable[..., Tensor],
    mean: Sequence[float],
    std: Sequence[float],
    device: torch.device,
) -> Iterator[Tensor]:
    """Yield clean images and their corrupted versions, half a batch at a time to keep the batch size of the user."""
    shift, scale = (torch.tensor(part, device=device)[:, None, None] for part in (mean, std))
    bounds: list[Tensor] = []
    start = 0
    for item in batches:
        images = item[0] if isinstance(item, (tuple, list)) else item
        if not isinstance(images, Tensor) or images.ndim != 4 or not len(images):
            yield images  # the caller raises the error
            return
        if {len(mean), len(std)} - {1, images.shape[1]}:
            raise VitlabError(
                f"invalid mean={tuple(mean)}, std={tuple(std)}; "
                f"expected one number for each of {images.shape[1]} channels"
            )
        for half in images.chunk(2):
            half = half.to(device)
            pixels = half.float() * scale + shift
            bounds.append(torch.stack(torch.aminmax(pixels)))
            if start == 0 or device.type == "cpu":  # other checks would synchronise the device; they run at the end
                _check_range(bounds[-1:])
            pixels = corrupt(pixels.clamp(0, 1), range(start, start + len(half))).float()
            pair = torch.cat((half, ((pixels - shift) / scale).to(half.dtype)))
            start += len(half)
            del half, pixels  # free memory for the forward
            yield pair
            del pair
    _check_range(bounds)


def corruption_function(
    corruption: Any, severity: int, sigma: float | None, seed: int
) -> Callable[[Tensor, Sequence[int]], Tensor]:
    """Returns a function from pixels and image indices to corrupted pixels.

    Args:
        corruption: name of an ImageNet-C corruption, or a function of pixels in [0, 1].
        severity: of a named corruption, 1 to 5.
        sigma: if given, Gaussian noise of this standard deviation in pixels instead.
        seed: random seed; the noise of an image depends on it and on the index of the image.
    """
    if sigma is not None:
        level = sigma
        return lambda x, indices: gaussian_noise(x, Randomness.of(seed, "gaussian_noise", 0, indices, x.device), level)
    if isinstance(corruption, str):
        return lambda x, indices: corrupt_pixels(x, corruption, severity, seed=seed, indices=indices)
    return partial(_by_function, corruption)


def _by_function(corruption: Callable[[Tensor], Any], x: Tensor, indices: Sequence[int]) -> Tensor:
    """Apply a function of the user; an error if it fails or returns no pixels."""
    try:
        changed = corruption(x)
    except Exception as error:  # code of the user
        reason = " ".join(str(error).split())[:200]
        raise VitlabError(f"the corruption function failed ({type(error).__name__}: {reason})") from error
    if not isinstance(changed, Tensor) or changed.shape != x.shape:
        raise VitlabError(
            f"the corruption function returned {type(changed).__name__}; expected pixels of shape {tuple(x.shape)}"
        )
    return changed


def _check_range(bounds: Sequence[Tensor]) -> None:
    """Raise an error if the minimum or maximum pixel of a batch is outside [0, 1]; `observe` reports empty data."""
    low, high = torch.stack(list(bounds)).unbind(1) if bounds else torch.tensor([[0.0], [1.0]])
    least, most = float(low.min()), float(high.max())
    if math.isnan(least + most):
        raise VitlabError("some pixels are NaN; check the images")
    if not (least >= -0.01 and most <= 1.01):
        raise VitlabError(
            f"images * std + mean run from {least:.3g} to {most:.3g}, not 0 to 1; "
            "set mean= and std= to the normalisation of the images"
        )


def normalisation(
    model: nn.Module,
    batches: Iterable[Any],
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    instrument: str,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns mean and std from the settings, else from the batches, else from the model."""
    if (mean is None) != (std is None):
        given, absent = ("mean", "std") if std is None else ("std", "mean")
        raise VitlabError(f"{instrument}: {given}= was given without {absent}=; give both, or omit {given}=")
    for known in (
        (mean, std),
        (getattr(batches, "mean", None), getattr(batches, "std", None)),
        normalisation_of(model) or (None, None),
    ):
        if known[0] is not None and known[1] is not None:
            return tuple(map(float, known[0])), tuple(map(float, known[1]))
    raise VitlabError(
        f"{instrument} needs the normalisation of the images, which is unknown; pass Batches, or mean= and std="
    )
