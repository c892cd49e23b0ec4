"""Per-image scores of a classifier's predictions, shared by instruments.

Shape legend: B batch, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.instruments.shared.loss_surface import soft_targets


@dataclass(frozen=True)
class Scores:
    """Scores of the predictions of B images: float64 arrays of length B.

    Args:
        nll: −Σ_c y_c log p_c, in nats.
        correct: 1 if the most probable class is the label, else 0.
        confidence: the largest probability.
        brier: Σ_c (p_c − y_c)², between 0 and 2.
    """

    nll: np.ndarray
    correct: np.ndarray
    confidence: np.ndarray
    brier: np.ndarray

    def __len__(self) -> int:
        """B."""
        return len(self.nll)


def score(logits: Tensor, targets: Any) -> Scores:
    """Compute the scores of a batch.

    Args:
        logits: (B, C).
        targets: class indices (B,), probabilities (B, C), whose largest is the label, or (labels, partners, share).

    >>> scores = score(torch.zeros(1, 4), torch.tensor([0]))
    >>> float(scores.nll[0].round(4)), float(scores.correct[0]), float(scores.confidence[0]), float(scores.brier[0])
    (1.3863, 1.0, 0.25, 0.75)
    """
    log_probability = logits.detach().double().log_softmax(1)
    truth = soft_targets(targets, logits.shape[1]).to(log_probability)
    if len(truth) != len(logits):
        raise VitlabError(f"a batch has {len(logits)} images but {len(truth)} targets")
    probability = log_probability.exp()
    scores = torch.stack(
        [
            -(truth * log_probability).sum(1),
            (log_probability.argmax(1) == truth.argmax(1)).double(),
            probability.amax(1),
            (probability - truth).square().sum(1),
        ]
    )
    return Scores(*scores.cpu().numpy())  # one device synchronisation


def concatenate(scores: Sequence[Scores]) -> Scores:
    """Concatenate the scores of several batches."""
    names = [field.name for field in fields(Scores)]
    return Scores(*(np.concatenate([getattr(batch, name) for batch in scores]) for name in names))


def predict(model: nn.Module, images: Tensor, instrument: str) -> Tensor:
    """(B, C) logits, unwrapped from a library's output object; raise an error if they are not finite."""
    output = model(images)
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise VitlabError(f"{instrument} needs a classifier; {type(model).__name__} does not return logits (B, C)")
    if not bool(logits.isfinite().all()):
        raise VitlabError(f"{instrument}: logits are not finite; check the model's weights and the images for NaN")
    return logits


def device_batches(
    batches: Iterable[Any], device: torch.device, instrument: str, count: int | None
) -> Iterator[tuple[Tensor, Any]]:
    """Yield (images on the device, targets), exactly `count` images in total; check images and targets."""
    if count is not None and count < 1:
        raise VitlabError(f"{instrument}: invalid images={count}; expected at least 1, or None for all")
    seen = 0
    for item in batches:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise VitlabError(f"{instrument} needs labels: batches must yield (images, targets)")
        images, targets = item
        if not isinstance(images, Tensor) or images.ndim != 4 or not len(images):
            raise VitlabError(f"{instrument} needs batches of images of shape (B, C, h, w) with at least one image")
        used = len(images) if count is None else min(len(images), count - seen)
        yield images[:used].to(device), _first_targets(targets, used, len(images))
        seen += used
        if seen == count:
            return
    if not seen:
        raise VitlabError(f"{instrument} needs at least one batch of images; there are none")
    if count is not None:
        raise VitlabError(f"{instrument}: invalid images={count}; the data has only {seen} images")


def image_batches(batches: Iterable[Any], device: torch.device, instrument: str, count: int | None) -> Iterator[Tensor]:
    """Yield images on the device, at most `count` in total; targets are ignored."""
    if count is not None and count < 1:
        raise VitlabError(f"{instrument}: invalid images={count}; expected at least 1, or None for all")
    seen = 0
    for item in batches:
        images = item[0] if isinstance(item, (tuple, list)) else item
        if not isinstance(images, Tensor) or images.ndim != 4 or not len(images):
            raise VitlabError(f"{instrument} needs batches of images of shape (B, C, h, w) with at least one image")
        used = len(images) if count is None else min(len(images), count - seen)
        yield images[:used].to(device)
        seen += used
        if seen == count:
            return
    if not seen:
        raise VitlabError(f"{instrument} needs at least one batch of images; there are none")


def device_of(model: nn.Module) -> torch.device:
    """Device of the model's first parameter; the CPU if it has none."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _first_targets(targets: Any, used: int, count: int) -> Any:
    """Targets of the first `used` of `count` images; applied to each element of (labels, partners, share)."""
    if used == count:
        return targets
    if isinstance(targets, (tuple, list)):
        return tuple(_first_targets(part, used, count) for part in targets)
    return targets[:used] if isinstance(targets, Tensor) and targets.ndim and len(targets) == count else targets
