"""RVT's patch-wise augmentation: each 16 × 16 patch is cropped, given noise and mirrored independently at random.

Towards Robust Vision Transformer (Mao et al.), Sec. 3.4. RVT trains on both the mixed batch and this version of it, so
it is separate from `augment`: the training loop calls it on the mixed batch.

Shape legend: B batch, C channels, h w pixels, P patches of the batch, s side of a patch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.data.device_copy import per_channel
from vitlab.data.random_assignment import assign_slots, put, take
from vitlab.data.rectangles import draw_rectangles
from vitlab.data.warping import zoom

__all__ = ["augment_patches"]


def augment_patches(
    images: Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    generator: torch.Generator,
    side: int = 16,
    probability: float = 0.1,
) -> Tensor:
    """Augment random patches, in the order of RVT's code: resized crop, Gaussian noise, horizontal flip.

    The crop keeps 85 to 100 % of the area at ratio 1 and is resized bilinearly; the noise has standard deviation
    0.01 in normalised units; the result is clamped to the range of pixels in [0, 1]. Patches are assigned to slots (see
    `random_assignment`).

    Args:
        images: (B, C, h, w), normalised.
        mean, std: normalisation constants per channel.
        generator: a generator on the images' device.
        side: s; h and w must be multiples of it.
        probability: of each of the three, for each patch.

    Returns:
        (B, C, h, w) of the same dtype.

    >>> grey = torch.zeros(2, 3, 32, 48)
    >>> changed = augment_patches(grey, (0.5,) * 3, (0.5,) * 3, torch.Generator().manual_seed(0), probability=1.0)
    >>> changed.shape, 0.009 < changed.std().item() < 0.011
    (torch.Size([2, 3, 32, 48]), True)
    """
    if images.shape[2] % side or images.shape[3] % side:
        raise VitlabError(
            f"invalid side={side}; image sizes must be multiples of it, got {tuple(images.shape[2:])}; set side="
        )
    patches = _split(images.float(), side)
    for operation in (_crop, _noise, _mirror):
        patches = _apply_to_share(operation, patches, generator, probability)
    centre, spread = per_channel(mean, images.device), per_channel(std, images.device)
    joined = _join(patches, images.shape)
    return joined.clamp((0 - centre) / spread, (1 - centre) / spread).to(images.dtype)


def _apply_to_share(
    operation: Callable[[Tensor, torch.Generator], Tensor], patches: Tensor, generator: torch.Generator, p: float
) -> Tensor:
    """Apply an operation to a share p of the patches."""
    rows, active = assign_slots(len(patches), p, generator)
    chosen = take(patches, rows)
    return put(patches, rows, torch.where(active[:, None, None, None], operation(chosen, generator), chosen))


def _crop(patches: Tensor, generator: torch.Generator) -> Tensor:
    size = (patches.shape[2], patches.shape[3])
    windows, _ = draw_rectangles(len(patches), size, (0.85, 1.0), 1.0, size, generator)
    return zoom(patches, windows)


def _noise(patches: Tensor, generator: torch.Generator) -> Tensor:
    return patches + 0.01 * torch.randn(patches.shape, generator=generator, device=patches.device)


def _mirror(patches: Tensor, _: torch.Generator) -> Tensor:
    return patches.flip(3)


def _split(images: Tensor, side: int) -> Tensor:
    """(B, C, h, w) -> (P, C, s, s)."""
    tiles = images.unflatten(3, (-1, side)).unflatten(2, (-1, side))  # B C rows s columns s
    rows: Tensor = tiles.permute(0, 2, 4, 1, 3, 5).flatten(0, 2)
    return rows


def _join(patches: Tensor, shape: torch.Size) -> Tensor:
    """(P, C, s, s) -> (B, C, h, w)."""
    side = patches.shape[2]
    tiles = patches.unflatten(0, (shape[0], shape[2] // side, shape[3] // side))
    images: Tensor = tiles.permute(0, 3, 1, 4, 2, 5).reshape(shape)
    return images
