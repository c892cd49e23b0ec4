"""What a classifier predicts, image by image: the numbers that instruments of predictions share.

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
    """How well each of B images was predicted: arrays of length B, in float64.

    Args:
        nll: −Σ_c y_c log p_c, in nats.
        correct: 1 where the most probable class is the label, else 0.
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
    """Scores of a batch.

    Args:
        logits: (B, C).
        targets: class indices (B,), probabilities (B, C), whose largest is the label, or (labels, partners, share).

    >>> found = score(torch.zeros(1, 4), torch.tensor([0]))
    >>> float(found.nll[0].round(4)), float(found.correct[0]), float(found.confidence[0]), float(found.brier[0])
    (1.3863, 1.0, 0.25, 0.75)
    """
    log_probability = logits.detach().double().log_softmax(1)
    truth = soft_targets(targets, logits.shape[1]).to(log_probability)
    if len(truth) != len(logits):
        raise VitlabError(f"a batch has {len(logits)} images but {len(truth)} targets")
    probability = log_probability.exp()
    found = torch.stack(
        [
            -(truth * log_probability).sum(1),
            (log_probability.argmax(1) == truth.argmax(1)).double(),
            probability.amax(1),
            (probability - truth).square().sum(1),
        ]
    )
    return Scores(*found.cpu().numpy())  # one wait for the device


def together(scores: Sequence[Scores]) -> Scores:
    """The scores of several batches as one."""
    names = [field.name for field in fields(Scores)]
    return Scores(*(np.concatenate([getattr(one, name) for one in scores]) for name in names))


def predict(model: nn.Module, images: Tensor, who: str) -> Tensor:
    """(B, C) logits, whatever a library wraps them in; an error where they are no numbers."""
    try:
        output = model(images)
    except Exception as error:  # whatever another library's forward raises, the user learns which input it was
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise VitlabError(
            f"{who}: {type(model).__name__} does not run on images of shape {tuple(images.shape)} ({reason})"
        ) from error
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise VitlabError(f"{who} needs a classifier; {type(model).__name__} does not give logits (B, C)")
    if not bool(logits.isfinite().all()):
        raise VitlabError(f"{who}: logits are not finite; check the model's weights and the images for NaN")
    return logits


def labelled(batches: Iterable[Any], device: torch.device, who: str, count: int | None) -> Iterator[tuple[Tensor, Any]]:
    """The batches as (images, targets), up to exactly `count` images; an error where labels or images are missing."""
    if count is not None and count < 1:
        raise VitlabError(f"{who} got images={count}; expected at least 1, or None for all")
    seen = 0
    for item in batches:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise VitlabError(f"{who} needs labels: batches must yield (images, targets)")
        images, targets = item
        if not isinstance(images, Tensor) or images.ndim != 4 or not len(images):
            raise VitlabError(f"{who} needs batches of images of shape (B, C, h, w), and at least one image")
        left = len(images) if count is None else min(len(images), count - seen)
        yield images[:left].to(device), _first(targets, left, len(images))
        seen += left
        if seen == count:
            return
    if not seen:
        raise VitlabError(f"{who} needs at least one batch of images; there are none")
    if count is not None:
        raise VitlabError(f"{who} was asked for images={count}, but the data holds only {seen}")


def device_of(model: nn.Module) -> torch.device:
    """Where the model is."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _first(targets: Any, left: int, count: int) -> Any:
    """The targets of the first images; each part of (labels, partners, share) by itself."""
    if left == count:
        return targets
    if isinstance(targets, (tuple, list)):
        return tuple(_first(part, left, count) for part in targets)
    return targets[:left] if isinstance(targets, Tensor) and targets.ndim and len(targets) == count else targets
