"""Evaluate a segmentation model under perturbations of the pixels: one confusion matrix over all images.

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
from vitlab.eval_mode import eval_mode
from vitlab.stress_tests.shared.pixel_evaluation import normalisation, to_pixels, validated_batches
from vitlab.stress_tests.shared.segmentation_examples import Examples

#: Maps pixels (B, C, h, w) in [0, 1] and the indices of the images to pixels of the same shape.
Perturbation = Callable[[Tensor, Sequence[int]], Tensor]
Counter = Callable[[Perturbation | None], dict[str, np.ndarray]]


def segment(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Returns the label map of one image: the argmax of the logits after bilinear resizing to the size of the mask.

    Args:
        logits: (K, h', w'), at any size; those of SegFormer have a quarter of the image size.
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
    model: nn.Module,
    batches: Iterable[Any],
    test_name: str,
    *,
    ignore: int | None = 255,
    images: int | None = None,
    pictures: int = 0,
) -> Counter:
    """Returns a function that segments all images under a perturbation and computes the confusion matrix.

    The state of the model is restored on exit. One batch is in memory at a time, and the logits of one image at the
    size of its mask.

    Args:
        model: returns logits (B, K, h', w'), as a tensor, as torchvision's `{"out": …}` or as Hugging Face's `.logits`.
        batches: yields (images, masks), masks (B, H, W) of integers. Batches that can be iterated only once are first
            collected into a list.
        test_name: the name of the stress test, for errors.
        ignore: the label of pixels to ignore; None counts all pixels.
        images: number of images, from the start; default all.
        pictures: number of clean images that are returned with labels and predictions.

    Returns:
        A function that maps a perturbation, or None for the clean images, to `confusion` (K, K), whose rows are labels,
        `images` (), the number of images, and the values of `Examples` for the clean images.
    """
    inner = unwrap(model)
    device = next((parameter.device for parameter in inner.parameters()), torch.device("cpu"))
    mean, std = normalisation(inner, batches, test_name)
    read = reiterable(batches, lambda items: validated_batches(items, test_name, images, least=1))

    def count(perturbation: Perturbation | None = None) -> dict[str, np.ndarray]:
        confusion: Tensor | None = None
        seen = 0
        examples = Examples(pictures if perturbation is None else 0)
        with eval_mode(inner):
            for given, masks in read():
                check_masks(masks, given, test_name)
                pixels = to_pixels(given.to(device), mean, std, test_name)
                if perturbation is not None:
                    pixels = perturbation(pixels, range(seen, seen + len(given))).clamp(0, 1)
                logits = logits_of(inner, pixels, mean, std, test_name)
                classes = logits.shape[1]
                _check_labels(masks, classes, ignore, test_name)
                if confusion is None:
                    confusion = torch.zeros(classes, classes, dtype=torch.int64, device=device)
                for image, each, mask in zip(pixels, logits, masks.to(device), strict=True):
                    predicted = segment(each, (mask.shape[0], mask.shape[1]))
                    confusion += confusion_matrix(predicted, mask, classes, ignore)
                    if examples.selects(seen):
                        examples.add(image, mask, predicted)
                    seen += 1
        if confusion is None or not bool(confusion.any()):
            raise VitlabError(
                f"{test_name}: all pixels of the {seen} images have the ignored label {ignore}; expected others"
            )
        return {"confusion": confusion.cpu().numpy(), "images": np.asarray(seen), **examples.values()}

    return count


def check_masks(masks: Any, images: Tensor, test_name: str) -> None:
    """Raise an error for invalid masks. They may be larger or smaller than the images, but not transposed."""
    if not isinstance(masks, Tensor) or masks.ndim != 3 or len(masks) != len(images) or masks.is_floating_point():
        given = f"{masks.dtype} {tuple(masks.shape)}" if isinstance(masks, Tensor) else type(masks).__name__
        raise VitlabError(f"{test_name} needs integer masks (B, h, w) for images {tuple(images.shape)}; got {given}")
    (h, w), size = images.shape[2:], tuple(masks.shape[1:])
    if h != w and size == (w, h):
        raise VitlabError(
            f"{test_name}: masks {size} are transposed relative to images {(h, w)}; transpose them to (B, h, w)"
        )


def logits_of(model: nn.Module, pixels: Tensor, mean: Sequence[float], std: Sequence[float], test_name: str) -> Tensor:
    """Returns float32 logits (B, K, h', w') of pixels, after the model's normalisation."""
    shift, scale = (torch.tensor(each, device=pixels.device).view(-1, 1, 1) for each in (mean, std))
    dtype = next((parameter.dtype for parameter in model.parameters()), pixels.dtype)
    output = model(((pixels - shift) / scale).to(dtype))
    logits = output["out"] if isinstance(output, Mapping) and "out" in output else getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.ndim != 4 or len(logits) != len(pixels):
        given = f"logits {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise VitlabError(
            f"{test_name} needs a segmentation model with logits (B, K, h, w); {type(model).__name__} returns {given} "
            f"for {len(pixels)} images"
        )
    if not bool(logits.isfinite().all()):
        raise VitlabError(f"{test_name}: logits are not finite; check the model's weights and the images for NaN")
    return logits.float()


def _check_labels(masks: Tensor, classes: int, ignore: int | None, test_name: str) -> None:
    """Raise an error for labels that are neither a class nor ignored."""
    labels = masks if ignore is None else masks[masks != ignore]
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise VitlabError(
            f"{test_name}: masks have labels from {int(labels.min())} to {int(labels.max())} and the model has "
            f"{classes} classes, ignore={ignore}; set ignore= to the label of unlabelled pixels, or use a model of "
            "these classes"
        )


def confusion_matrix(predicted: Tensor, labels: Tensor, classes: int, ignore: int | None) -> Tensor:
    """Returns the number of pixels of each label (row) and prediction (column): (K, K) int64.

    Args:
        predicted: (...), class indices.
        labels: (...), class indices, or the ignored label.
        classes: K.
        ignore: the label of pixels that are not counted; None counts all pixels.

    >>> confusion_matrix(torch.tensor([[0, 1, 1]]), torch.tensor([[0, 0, 255]]), 2, ignore=255).tolist()
    [[1, 1], [0, 0]]
    """
    labels = labels.long()
    pairs = labels * classes + predicted
    if ignore is not None:
        pairs = torch.where(labels == ignore, classes * classes, pairs)
    return torch.bincount(pairs.flatten(), minlength=classes * classes + 1)[:-1].view(classes, classes)
