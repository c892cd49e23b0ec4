"""Gradient-weighted attention: the relevance of input tokens for the score of a class.

    R_l = R_{l−1} + mean_h max(0, ∂s/∂A_l ⊙ A_l) R_{l−1},   R_0 = I

s is the logit of the predicted class. Chefer et al. 2021, "Generic attention-model explainability for interpreting
bi-modal and encoder-decoder transformers", Eqs. 5 and 6.

Shape legend: B batch, H heads, N tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.bounds import ImageCount, Range
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.instruments.shared.explicit_attention import explicit_attention
from vitlab.instruments.shared.predictions import predict
from vitlab.instruments.shared.token_relevance import StoredImages, measure_relevance, propagated

CARD = Card(
    title="Relevance of image tokens for the predicted class by gradient-weighted attention",
    paper="",
    cost="one forward and one backward",
    inputs="images",
    passes="one",
    needs=("attention",),
)

_NAME = "gradient_attention"


def weighted(maps: Tensor, gradients: Tensor) -> Tensor:
    """mean_h max(0, ∂s/∂A ⊙ A): (B, H, N, N) twice -> (B, N, N).

    >>> weighted(torch.tensor([[[[0.5]], [[0.5]]]]), torch.tensor([[[[2.0]], [[-2.0]]]]))
    tensor([[[0.5000]]])
    """
    return (maps * gradients).clamp_min(0).mean(1)


def relevance(
    model: nn.Module, anatomy: Anatomy, blocks: Sequence[Block], pixels: Tensor, *, target: int | None = None
) -> list[Tensor]:
    """Returns R_1 … R_L (B, N, N) of images.

    Args:
        model: a classifier that is a plain vision transformer, in evaluation mode, without wrappers.
        anatomy: the description of the model at the size of the images.
        blocks: its blocks; see `square_blocks`.
        pixels: (B, C, h, w)
        target: index of the class whose logit is differentiated; None for the predicted class of each image.
    """
    with torch.enable_grad(), explicit_attention(model, blocks) as maps:
        logits = predict(model, pixels.detach().clone().requires_grad_(), _NAME)
        if target is not None and not 0 <= target < logits.shape[1]:
            raise VitlabError(f"invalid target={target} for {_NAME}; expected 0 to {logits.shape[1] - 1}")
        chosen = logits.argmax(1) if target is None else torch.full_like(logits[:, 0], target, dtype=torch.int64)
        missing = [block.name for block in blocks if block.name not in maps]
        if missing:
            raise VitlabError(f"{_NAME}: no attention map was computed in {', '.join(missing)}")
        score = logits.gather(1, chosen[:, None]).sum()
        gradients = torch.autograd.grad(score, [maps[block.name] for block in blocks])
    pairs = zip(blocks, gradients, strict=True)
    return propagated([weighted(maps[block.name].detach(), gradient) for block, gradient in pairs])


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    target: Annotated[int, Range(0, 10**9)] | None = None,
    images: ImageCount | None = None,
    stored: StoredImages = 8,
) -> Measurement:
    """Relevance of the tokens of the image grid for the score of a class, and its entropy after each layer.

    Args:
        model: a classifier that is a plain vision transformer: square maps of the same tokens in all layers.
        batches: yields (images, targets) or images; labels are not used.
        target: index of the class whose logit is differentiated; None for the predicted class of each image.
        images: number of images to use. Default: all.
        stored: number of images whose relevance map is stored.

    Returns:
        `map` (image, row, column), the share of each token of the grid in the row of R_L of the token that the output
        is computed from: the class token, or the mean of several (averaged patches, a distillation token); `entropy`
        (layer) in nats, of that row of R_l, averaged over images, with `entropy_error`; `prefix_share` (), the mean
        share of the prefix tokens in the last layer.
    """
    settings = {"target": target, "images": images, "stored": stored}
    of_class = partial(relevance, target=target)
    return measure_relevance(_NAME, model, batches, of_class, images, stored, settings)
