"""Corrupt images by name and severity: one function for a batch, one module for a pipeline of transforms.

Shape legend: B images, C channels (1 grey, 3 RGB, 4 RGBA), h w pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import v2

from vitlab.core.errors import VitlabError, unknown
from vitlab.corruptions import blur, digital, noise, weather
from vitlab.corruptions.parameters import ParameterSet, strength
from vitlab.corruptions.randomness import Randomness
from vitlab.corruptions.threads import share_out
from vitlab.corruptions.validation import integer

#: The 15 corruptions of ImageNet-C by group, as in the paper.
GROUPS: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
CORRUPTIONS: tuple[str, ...] = tuple(name for names in GROUPS.values() for name in names)

#: The four that the benchmark keeps for validation.
EXTRA: tuple[str, ...] = ("speckle_noise", "gaussian_blur", "spatter", "saturate")

#: Those that draw no random numbers: a second run gives the same bits.
DETERMINISTIC = frozenset(
    ("defocus_blur", "zoom_blur", "gaussian_blur", "brightness", "contrast", "pixelate", "jpeg_compression", "saturate")
)
_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    name: next(vars(file)[name] for file in (noise, blur, weather, digital) if name in vars(file))
    for name in CORRUPTIONS + EXTRA
}
_TYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ON_LEVELS = frozenset(("pixelate", "jpeg_compression"))  # the others work on float32 in [0, 1]
_CHUNK = {"cpu": 1 << 19, "cuda": 1 << 27}  # values at once: near the cache of a core; within a GPU's memory


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    *,
    seed: int = 0,
    indices: Sequence[int] | Tensor | None = None,
    parameters: ParameterSet | None = None,
) -> Tensor:
    """Corrupt a batch of images as ImageNet-C does (Hendrycks and Dietterich, ICLR 2019).

    Every random number is a function of (seed, name, severity, index of the image): batch size, order and threads do
    not change a bit.

    Args:
        images: (B, C, h, w) or (C, h, w), pixels in [0, 1] of a floating type, or uint8; grey, RGB or RGBA (alpha is
            kept). Not normalised. The result has the same shape, type and device; uint8 is rounded down, as the
            benchmark's files are.
        name: one of `CORRUPTIONS` or `EXTRA`.
        severity: 1 to 5.
        seed: any integer.
        indices: (B,) which images these are in their data set; 0, 1, … by default.
        parameters: `imagenet` or `cifar`, the strengths of ImageNet-C or CIFAR-C as released. By default CIFAR-C's
            where the longer side has at most 64 pixels, else ImageNet-C's. `imagecorruptions` is ImageNet-C with the
            elastic transform of that package.

    >>> images = torch.full((2, 3, 96, 96), 0.5)
    >>> corrupt(images, "brightness", 2)[0, :, 0, 0].tolist()
    [0.6999..., 0.6999..., 0.6999...]
    >>> both = corrupt(images, "fog", 3)
    >>> corrupt(images[1:], "fog", 3, indices=[1]).equal(both[1:])
    True
    """
    return _corrupt(images, name, severity, seed, indices, parameters, _check_range)


def corrupt_pixels(
    images: Tensor,
    name: str,
    severity: int,
    *,
    seed: int = 0,
    indices: Sequence[int],
    parameters: ParameterSet | None = None,
) -> Tensor:
    """`corrupt` for pixels that are known to lie in [0, 1]: it does not look, since a look waits for the device."""
    return _corrupt(images, name, severity, seed, indices, parameters, lambda images: None)


@torch.inference_mode(False)  # a caller's mode is not that of our threads, nor of the tensors that we keep
def _corrupt(
    images: Tensor,
    name: str,
    severity: int,
    seed: int,
    indices: Sequence[int] | Tensor | None,
    parameters: ParameterSet | None,
    look: Callable[[Tensor], None],
) -> Tensor:
    if name not in _FUNCTIONS:
        raise unknown("corruption", name, CORRUPTIONS + EXTRA)
    _check(images)
    batch = images[None] if images.ndim == 3 else images
    arguments = strength(name, severity, (batch.shape[2], batch.shape[3]), parameters)
    random = Randomness.of(seed, name, severity, _indices(indices, len(batch)), batch.device)
    batch = batch.detach().as_subclass(Tensor)
    colours, alpha = (batch[:, :3], batch[:, 3:]) if batch.shape[1] == 4 else (batch, None)
    result = _by_chunks(name, colours, random, arguments, look)
    result = result if alpha is None else torch.cat([result, alpha], dim=1)
    return result.view(images.shape)


class Corruption(v2.Transform):
    """A corruption as a transform of torchvision's v2: before normalisation, on one image or a batch.

    A sample may be what every such transform takes: an image, (image, label), a dict. Images are corrupted, each by
    itself, and keep their type; all else (labels, boxes, masks) passes through.

    Args:
        names: one name, or several of which each image draws one; by default the 15 of ImageNet-C.
        severities: one severity, or several of which each image draws one.
        seed: None draws afresh at each call, from torch's generator, as augmentations do (data loaders seed it in every
            worker); an integer makes the result a function of it and of `indices` or, without these, of the image
            itself: the same pixels are always corrupted alike, in whichever epoch, place and batch.
        parameters: as in `corrupt`.

    >>> fixed = Corruption("contrast", 5, seed=0)
    >>> fixed(torch.rand(3, 80, 80)).std().item() < 0.02
    True

    As an augmentation, of half of the images:

    >>> augment = v2.Compose([v2.ToImage(), v2.RandomApply([Corruption()], p=0.5), v2.ToDtype(torch.float32)])
    >>> image, label = augment(np.zeros((80, 80, 3), dtype=np.uint8), 7)
    >>> image.shape, label
    (torch.Size([3, 80, 80]), 7)
    """

    def __init__(
        self,
        names: str | Sequence[str] = CORRUPTIONS,
        severities: int | Sequence[int] = (1, 2, 3, 4, 5),
        *,
        seed: int | None = None,
        parameters: ParameterSet | None = None,
    ) -> None:
        super().__init__()
        self.names = (names,) if isinstance(names, str) else tuple(names)
        self.severities = tuple(severities) if isinstance(severities, Iterable) else (severities,)
        self.seed, self.parameter_set = None if seed is None else integer("seed", seed), parameters
        if not self.names or not self.severities:
            raise VitlabError("Corruption needs at least one name and one severity to draw from, got none")
        for name in self.names:
            for severity in self.severities:
                strength(name, severity, (224, 224), parameters)

    def forward(self, *inputs: Any, indices: Sequence[int] | Tensor | None = None) -> Any:
        """Samples as torchvision's transforms take them; with `indices` (B,), the images come first."""
        if indices is None:
            return super().forward(*inputs)
        result = self.transform(inputs[0], {"indices": indices})
        return (result, *inputs[1:]) if len(inputs) > 1 else result

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        """Refuse samples without any image, which torchvision would pass through."""
        if not any(isinstance(each, Tensor) for each in flat_inputs):
            _check(next(iter(flat_inputs), None))

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Images (B, C, h, w) or (C, h, w), corrupted; boxes and masks as they are."""
        if isinstance(inpt, tv_tensors.TVTensor) and not isinstance(inpt, (tv_tensors.Image, tv_tensors.Video)):
            return inpt
        _check(inpt)
        batch = inpt[None] if inpt.ndim == 3 else inpt
        seed = int(torch.randint(2**62, ())) if self.seed is None else self.seed
        indices = params.get("indices")
        if indices is None and self.seed is not None:
            indices = [_content(image) for image in batch]
        result = self._drawn(batch, seed, _indices(indices, len(batch))).view(inpt.shape)
        return tv_tensors.wrap(result, like=inpt) if isinstance(inpt, tv_tensors.TVTensor) else result

    def _drawn(self, batch: Tensor, seed: int, which: list[int]) -> Tensor:
        """(B, C, h, w), each image under the corruption that it draws."""
        choices = [(name, severity) for name in self.names for severity in self.severities]
        draws = Randomness.of(seed, "choice", 0, which).uniform(1)[:, 0].numpy()
        chosen = (draws * len(choices)).astype(np.int64).clip(max=len(choices) - 1)
        result = torch.empty_like(batch)
        for choice in np.unique(chosen):
            rows = np.flatnonzero(chosen == choice)
            told: dict[str, Any] = {"seed": seed, "indices": [which[row] for row in rows]}
            result[rows] = corrupt(batch[rows], *choices[choice], parameters=self.parameter_set, **told)
        return result

    def extra_repr(self) -> str:
        """What is drawn from."""
        return f"names={self.names}, severities={self.severities}, seed={self.seed}, parameters={self.parameter_set}"


def _by_chunks(
    name: str, images: Tensor, random: Randomness, arguments: Sequence[float], look: Callable[[Tensor], None]
) -> Tensor:
    """The corruption of a few images at a time: temporaries stay in the cache, memory does not grow with the batch."""

    def work(rows: slice) -> Tensor:
        look(images[rows])
        extra = () if name in DETERMINISTIC else (random[rows],)
        return _on_chunk(name, images[rows].contiguous(), *extra, *arguments)

    step = max(1, _CHUNK.get(images.device.type, 1 << 24) // max(1, images[:1].numel()))
    if images.device.type != "cpu":
        parts = [work(slice(start, start + step)) for start in range(0, max(1, len(images)), step)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)
    result = torch.empty(images.shape, dtype=images.dtype, device="cpu")

    def keep(rows: slice) -> None:
        result[rows] = work(rows)

    share_out(keep, len(images), step)
    return result


def _on_chunk(name: str, images: Tensor, *arguments: Any) -> Tensor:
    """Images (B, C, h, w) as given to images as returned; those of `_ON_LEVELS` are of 8 bits in between."""
    if name not in _ON_LEVELS:
        pixels = images.float().div_(255) if images.dtype == torch.uint8 else images.float()
        return _to_type(_FUNCTIONS[name](pixels, *arguments), images.dtype)
    levels = images if images.dtype == torch.uint8 else _whole(images.float().mul(255), 0.5)
    levels = _FUNCTIONS[name](levels, *arguments)
    return levels if images.dtype == torch.uint8 else levels.float().div_(255).to(images.dtype)


def _check(images: Any) -> None:
    """Refuse what is no picture, or not in pixels."""
    if not isinstance(images, Tensor):
        raise VitlabError(f"corruptions take a tensor, not {type(images).__name__}; put transforms.v2.ToImage() before")
    shape = tuple(images.shape)
    if images.ndim not in (3, 4) or shape[-3] not in (1, 3, 4) or 0 in shape[-2:]:
        raise VitlabError(f"images of shape {shape}: expected (B, C, h, w) or (C, h, w) with 1, 3 or 4 channels first")
    if images.dtype not in _TYPES:
        raise VitlabError(f"images of {images.dtype}: expected uint8, or floats in [0, 1]")


def _check_range(images: Tensor) -> None:
    if images.is_floating_point() and images.numel():
        low, high = torch.stack(torch.aminmax(images)).tolist()
        if not (low >= -1e-4 and high <= 1 + 1e-4):  # also not a number
            raise VitlabError(
                f"images from {low:.3g} to {high:.3g}: expected pixels in [0, 1]; corrupt before normalising, "
                "or undo it: images * std + mean"
            )


def _indices(indices: Sequence[int] | Tensor | None, count: int) -> list[int]:
    given = indices.cpu().numpy() if isinstance(indices, Tensor) else range(count) if indices is None else indices
    which = [integer("index", i) for i in np.ravel(np.asarray(given, dtype=object))]
    if len(which) != count:
        raise VitlabError(f"{len(which)} indices for {count} images; give one for each")
    return which


def _content(image: Tensor) -> int:
    """A number that only the same pixels have."""
    pixels = image.detach().as_subclass(Tensor).cpu().contiguous()
    return int.from_bytes(blake2b(pixels.view(torch.uint8).numpy().data, digest_size=8).digest(), "little")


def _to_type(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    # 1e-3 of a level, so that 7 / 255 · 255 is 7 and not 6.9999995 rounded down.
    return _whole(pixels.mul_(255), 1e-3) if dtype == torch.uint8 else pixels.to(dtype)


def _whole(levels: Tensor, offset: float) -> Tensor:
    """0 … 255 rounded down to uint8, after an offset, in place; by way of int16 it is twice as fast."""
    return levels.add_(offset).to(torch.int16).to(torch.uint8)
