"""A segmentation model on trial: pixels in, label maps out, one confusion matrix over all images.

Shape legend: B batch, K classes, h w pixels of the images, H W those of the masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.adapters.wrappers import unwrap
from vitlab.core.batches import reiterable
from vitlab.core.errors import VitlabError
from vitlab.core.statistics import confusion_matrix
from vitlab.eval_mode import eval_mode
from vitlab.stress_tests.shared.pixel_evaluation import labelled, normalisation, to_pixels

#: Pixels (B, C, h, w) in [0, 1] and which images these are, to pixels of the same shape.
Perturbation = Callable[[Tensor, Sequence[int]], Tensor]
Counter = Callable[[Perturbation | None], dict[str, np.ndarray]]


def segment(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """The label map of one image: logits are enlarged bilinearly to the mask, then the largest wins.

    Args:
        logits: (K, h', w'), at any size; SegFormer's are at a quarter.
        size: (H, W).

    Returns:
        (H, W) class indices.

    >>> segment(torch.tensor([[[3.0, 0.0]], [[0.0, 3.0]]]), (2, 4))
    tensor([[0, 0, 1, 1],
            [0, 0, 1, 1]])
    """
    if tuple(logits.shape[1:]) != tuple(size):
        logits = F.interpolate(logits[None], size, mode="bilinear", align_corners=False)[0]
    return logits.argmax(0)


def counter(
    model: nn.Module, batches: Iterable[Any], who: str, *, ignore: int | None = 255, images: int | None = None
) -> Counter:
    """What segments all images under a perturbation and counts which label was taken for which.

    The model is left as it was found. One batch is held at a time, and one image's logits at the size of its mask.

    Args:
        model: gives logits (B, K, h', w'), as a tensor, as torchvision's `{"out": …}` or as Hugging Face's `.logits`.
        batches: yields (images, masks), masks (B, H, W) of whole numbers; those that can be walked only once are first
            gathered into a list.
        who: the stress test, for errors.
        ignore: the label of pixels that do not count; None where all do.
        images: use the first so many; all by default.

    Returns:
        A function of a perturbation, or of None for the images as they are, to `confusion` (K, K), rows are labels, and
        `images` (), how many.
    """
    inner = unwrap(model)
    device = next((parameter.device for parameter in inner.parameters()), torch.device("cpu"))
    mean, std = normalisation(inner, batches, who)
    walk = reiterable(batches, lambda those: labelled(those, who, images, least=1))

    def count(perturbation: Perturbation | None = None) -> dict[str, np.ndarray]:
        confusion: np.ndarray | int = 0
        seen = 0
        with eval_mode(inner):
            for given, masks in walk():
                check_masks(masks, given, who)
                pixels = to_pixels(given.to(device), mean, std, who)
                if perturbation is not None:
                    pixels = perturbation(pixels, range(seen, seen + len(given))).clamp(0, 1)
                logits = _logits(inner, pixels, mean, std, who)
                confusion += sum(_compare(each, mask, ignore, who) for each, mask in zip(logits, masks, strict=True))
                seen += len(given)
        if not np.sum(confusion):
            raise VitlabError(
                f"{who} saw {seen} images and no pixel with another label than {ignore}; give images with labels"
            )
        return {"confusion": np.asarray(confusion), "images": np.asarray(seen)}

    return count


def check_masks(masks: Any, images: Tensor, who: str) -> None:
    """Refuse what are no masks of these images; they may be larger or smaller, but not lie on their side."""
    if not isinstance(masks, Tensor) or masks.ndim != 3 or len(masks) != len(images) or masks.is_floating_point():
        given = f"{masks.dtype} {tuple(masks.shape)}" if isinstance(masks, Tensor) else type(masks).__name__
        raise VitlabError(f"{who} needs masks (B, h, w) of whole numbers for images {tuple(images.shape)}, not {given}")
    (h, w), size = images.shape[2:], tuple(masks.shape[1:])
    if h != w and size == (w, h):
        raise VitlabError(f"{who}: masks {size} lie across images {(h, w)}; transpose them to (B, h, w)")


def _logits(model: nn.Module, pixels: Tensor, mean: Sequence[float], std: Sequence[float], who: str) -> Tensor:
    """(B, K, h', w') float32, of the model's own normalisation."""
    shift, scale = (torch.tensor(each, device=pixels.device).view(-1, 1, 1) for each in (mean, std))
    dtype = next((parameter.dtype for parameter in model.parameters()), pixels.dtype)
    output = model(((pixels - shift) / scale).to(dtype))
    logits = output["out"] if isinstance(output, Mapping) and "out" in output else getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.ndim != 4 or len(logits) != len(pixels):
        gives = f"logits {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise VitlabError(
            f"{who} needs a segmentation model with logits (B, K, h, w); {type(model).__name__} gives {gives} "
            f"for {len(pixels)} images"
        )
    if not bool(logits.isfinite().all()):
        raise VitlabError(f"{who}: logits are not finite; check the model's weights and the images for NaN")
    return logits.float()


def _compare(logits: Tensor, mask: Tensor, ignore: int | None, who: str) -> np.ndarray:
    """The confusion matrix (K, K) of one image, from logits (K, h', w') and its mask (H, W)."""
    predicted = segment(logits, (mask.shape[0], mask.shape[1])).cpu().numpy()
    labels = mask.cpu().numpy()
    counts = np.ones_like(labels, dtype=bool) if ignore is None else labels != ignore
    labels, predicted = labels[counts], predicted[counts]
    if labels.size and not 0 <= labels.min() <= labels.max() < len(logits):
        raise VitlabError(
            f"{who}: masks hold labels from {labels.min()} to {labels.max()} and the model has {len(logits)} classes, "
            f"ignore={ignore}; give the label of pixels that do not count as ignore=, or a model of these classes"
        )
    return confusion_matrix(labels, predicted, len(logits))
