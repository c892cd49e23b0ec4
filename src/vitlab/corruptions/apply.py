"""Corrupt images by name and severity: a function for batches, and a transform for torchvision pipelines.

Shape legend: B images, C channels (1 grey, 3 RGB, 4 RGBA), h w pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import v2

from vitlab.core.bounds import Choices
from vitlab.core.errors import VitlabError, unknown
from vitlab.corruptions import blur, digital, noise, weather
from vitlab.corruptions.parameters import ParameterSet, strength
from vitlab.corruptions.randomness import Randomness
from vitlab.corruptions.threads import run_in_threads
from vitlab.corruptions.validation import integer

#: The 15 corruptions of ImageNet-C by group, as in the paper.
GROUPS: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
CORRUPTIONS: tuple[str, ...] = tuple(name for names in GROUPS.values() for name in names)

#: The four corruptions that the benchmark reserves for validation.
EXTRA: tuple[str, ...] = ("speckle_noise", "gaussian_blur", "spatter", "saturate")

#: The name of a corruption, as a setting.
CorruptionName = Annotated[str, Choices(CORRUPTIONS + EXTRA)]

#: Corruptions that use no random numbers.
DETERMINISTIC = frozenset(
    ("defocus_blur", "zoom_blur", "gaussian_blur", "brightness", "contrast", "pixelate", "jpeg_compression", "saturate")
)
_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    name: next(vars(file)[name] for file in (noise, blur, weather, digital) if name in vars(file))
    for name in CORRUPTIONS + EXTRA
}
_TYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ON_LEVELS = frozenset(("pixelate", "jpeg_compression"))  # the others work on float32 in [0, 1]
_CHUNK = {"cpu": 1 << 19, "cuda": 1 << 27}  # values per chunk: the cache size of a core; a fraction of a GPU's memory


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

    Every random number is a function of (seed, name, severity, index of the image). The result is bitwise independent
    of batch size, order and number of threads.

    Args:
        images: (B, C, h, w) or (C, h, w), floating-point pixels in [0, 1] or uint8, not normalised; grey, RGB or RGBA.
            Alpha is not changed. The result has the same shape, dtype and device; uint8 is rounded down, as in the
            files of the benchmark.
        name: one of `CORRUPTIONS` or `EXTRA`.
        severity: 1 to 5.
        seed: any integer.
        indices: (B,) indices of the images in their data set; default 0, 1, ….
        parameters: `imagenet` or `cifar`, the released strengths of ImageNet-C or CIFAR-C. Default: `cifar` if the
            longer side has at most 64 pixels, else `imagenet`. `imagecorruptions` is `imagenet` with the elastic
            transform of that package.

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
    """`corrupt` for pixels that are known to be in [0, 1]. It skips the range check, which synchronises the device."""
    return _corrupt(images, name, severity, seed, indices, parameters, lambda images: None)


@torch.inference_mode(False)  # inference mode is per thread, and its tensors must not be cached
def _corrupt(
    images: Tensor,
    name: str,
    severity: int,
    seed: int,
    indices: Sequence[int] | Tensor | None,
    parameters: ParameterSet | None,
    check_range: Callable[[Tensor], None],
) -> Tensor:
    if name not in _FUNCTIONS:
        raise unknown("corruption", name, CORRUPTIONS + EXTRA)
    _check(images)
    batch = images[None] if images.ndim == 3 else images
    arguments = strength(name, severity, (batch.shape[2], batch.shape[3]), parameters)
    random = Randomness.of(seed, name, severity, _indices(indices, len(batch)), batch.device)
    batch = batch.detach().as_subclass(Tensor)
    colours, alpha = (batch[:, :3], batch[:, 3:]) if batch.shape[1] == 4 else (batch, None)
    result = _by_chunks(name, colours, random, arguments, check_range)
    result = result if alpha is None else torch.cat([result, alpha], dim=1)
    return result.view(images.shape)


class Corruption(v2.Transform):  # type: ignore[misc]
    """A corruption as a torchvision v2 transform, for one image or a batch; apply it before normalisation.

    A sample may be anything that a v2 transform accepts: an image, (image, label), a dict. Each image is corrupted
    independently and keeps its type. Other entries (labels, boxes, masks) are not changed.

    Args:
        names: one name, or several, of which one is drawn per image; default the 15 of ImageNet-C.
        severities: one severity, or several, of which one is drawn per image.
        seed: None draws a new seed at each call from torch's global generator, as augmentations do (data loaders seed
            it in every worker). With an integer the result is a function of the seed and `indices` or, without
            indices, of the pixels: equal images are corrupted equally in every epoch, position and batch.
        parameters: see `corrupt`.

    >>> fixed = Corruption("contrast", 5, seed=0)
    >>> fixed(torch.rand(3, 80, 80)).std().item() < 0.02
    True

    As an augmentation of half of the images:

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
            raise VitlabError("invalid names or severities for Corruption; expected at least one name and one severity")
        for name in self.names:
            for severity in self.severities:
                strength(name, severity, (224, 224), parameters)

    def forward(self, *inputs: Any, indices: Sequence[int] | Tensor | None = None) -> Any:
        """Corrupt the images of a sample. With `indices` (B,), the first input must be the images."""
        if indices is None:
            return super().forward(*inputs)
        result = self.transform(inputs[0], {"indices": indices})
        return (result, *inputs[1:]) if len(inputs) > 1 else result

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        """Raise an error for samples without an image, which torchvision would ignore."""
        if not any(isinstance(each, Tensor) for each in flat_inputs):
            _check(next(iter(flat_inputs), None))

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Corrupt images (B, C, h, w) or (C, h, w); boxes and masks are not changed."""
        if isinstance(inpt, tv_tensors.TVTensor) and not isinstance(inpt, (tv_tensors.Image, tv_tensors.Video)):
            return inpt
        _check(inpt)
        batch = inpt[None] if inpt.ndim == 3 else inpt
        seed = int(torch.randint(2**62, ())) if self.seed is None else self.seed
        indices = params.get("indices")
        if indices is None and self.seed is not None:
            indices = [_content(image) for image in batch]
        result = self._corrupt_drawn(batch, seed, _indices(indices, len(batch))).view(inpt.shape)
        return tv_tensors.wrap(result, like=inpt) if isinstance(inpt, tv_tensors.TVTensor) else result

    def _corrupt_drawn(self, batch: Tensor, seed: int, indices: list[int]) -> Tensor:
        """Draw a corruption for each image and apply it: (B, C, h, w) to (B, C, h, w)."""
        choices = [(name, severity) for name in self.names for severity in self.severities]
        draws = Randomness.of(seed, "choice", 0, indices).uniform(1)[:, 0].numpy()
        chosen = (draws * len(choices)).astype(np.int64).clip(max=len(choices) - 1)
        result = torch.empty_like(batch)
        for choice in np.unique(chosen):
            rows = np.flatnonzero(chosen == choice)
            keys: dict[str, Any] = {"seed": seed, "indices": [indices[row] for row in rows]}
            result[rows] = corrupt(batch[rows], *choices[choice], parameters=self.parameter_set, **keys)
        return result

    def extra_repr(self) -> str:
        """The settings."""
        return f"names={self.names}, severities={self.severities}, seed={self.seed}, parameters={self.parameter_set}"


def _by_chunks(
    name: str, images: Tensor, random: Randomness, arguments: Sequence[float], check_range: Callable[[Tensor], None]
) -> Tensor:
    """Corrupt a few images at a time, so that temporaries fit in the cache and memory does not grow with the batch."""

    def work(rows: slice) -> Tensor:
        check_range(images[rows])
        extra = () if name in DETERMINISTIC else (random[rows],)
        return _on_chunk(name, images[rows].contiguous(), *extra, *arguments)

    step = max(1, _CHUNK.get(images.device.type, 1 << 24) // max(1, images[:1].numel()))
    if images.device.type != "cpu":
        parts = [work(slice(start, start + step)) for start in range(0, max(1, len(images)), step)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)
    result = torch.empty(images.shape, dtype=images.dtype, device="cpu")

    def store(rows: slice) -> None:
        result[rows] = work(rows)

    run_in_threads(store, len(images), step)
    return result


def _on_chunk(name: str, images: Tensor, *arguments: Any) -> Tensor:
    """Corrupt images (B, C, h, w) and convert the dtype; corruptions of `_ON_LEVELS` work on uint8."""
    if name not in _ON_LEVELS:
        pixels = images.float().div_(255) if images.dtype == torch.uint8 else images.float()
        return _to_type(_FUNCTIONS[name](pixels, *arguments), images.dtype)
    levels = images if images.dtype == torch.uint8 else _round_down(images.float().mul(255), 0.5)
    levels = _FUNCTIONS[name](levels, *arguments)
    return levels if images.dtype == torch.uint8 else levels.float().div_(255).to(images.dtype)


def _check(images: Any) -> None:
    """Raise an error for an invalid type, shape or dtype."""
    if not isinstance(images, Tensor):
        given = type(images).__name__
        raise VitlabError(f"invalid images of type {given}; expected a tensor; apply transforms.v2.ToImage() first")
    shape = tuple(images.shape)
    if images.ndim not in (3, 4) or shape[-3] not in (1, 3, 4) or 0 in shape[-2:]:
        raise VitlabError(f"invalid images of shape {shape}; expected (B, C, h, w) or (C, h, w), 1, 3 or 4 channels")
    if images.dtype not in _TYPES:
        raise VitlabError(f"invalid images of {images.dtype}; expected uint8, or floats in [0, 1]")


def _check_range(images: Tensor) -> None:
    if images.is_floating_point() and images.numel():
        low, high = torch.stack(torch.aminmax(images)).tolist()
        if not (low >= -1e-4 and high <= 1 + 1e-4):  # also true for NaN
            raise VitlabError(
                f"invalid images from {low:.3g} to {high:.3g}; expected pixels in [0, 1]; corrupt before normalising, "
                "or undo it with images * std + mean"
            )


def _indices(indices: Sequence[int] | Tensor | None, count: int) -> list[int]:
    given = indices.cpu().numpy() if isinstance(indices, Tensor) else range(count) if indices is None else indices
    checked = [integer("index", i) for i in np.ravel(np.asarray(given, dtype=object))]
    if len(checked) != count:
        raise VitlabError(f"invalid indices: got {len(checked)} for {count} images; expected one per image")
    return checked


def _content(image: Tensor) -> int:
    """Returns a 64-bit hash of the pixels."""
    pixels = image.detach().as_subclass(Tensor).cpu().contiguous()
    return int.from_bytes(blake2b(pixels.view(torch.uint8).numpy().data, digest_size=8).digest(), "little")


def _to_type(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    # The offset of 1e-3 levels is needed because 7 / 255 · 255 may be 6.9999995 in float32, and must give 7.
    return _round_down(pixels.mul_(255), 1e-3) if dtype == torch.uint8 else pixels.to(dtype)


def _round_down(levels: Tensor, offset: float) -> Tensor:
    """Add an offset in place and round 0 … 255 down to uint8. The conversion via int16 is twice as fast."""
    return levels.add_(offset).to(torch.int16).to(torch.uint8)
