"""Attention rollout: the relevance of input tokens for the output, from the product of all attention maps.

    R_l = (r I + (1 − r) A_l) R_{l−1},   R_0 = I

Abnar & Zuidema 2020, "Quantifying attention flow in transformers". Values and the MLPs are not taken into account.

Shape legend: n images, B batch, N tokens, h w grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.bounds import ImageCount, Share
from vitlab.core.measurement import Card, Measurement
from vitlab.instruments.shared.token_relevance import StoredImages, measure_relevance, rollout
from vitlab.recording.attention_call import AttentionCall
from vitlab.recording.tape import record

CARD = Card(
    title="Relevance of image tokens by attention rollout",
    paper="",
    cost="one forward",
    inputs="images",
    passes="one",
    needs=("attention",),
)

_NAME = "attention_rollout"
Fusion = Literal["mean", "max", "min"]


def fuse(maps: Tensor, fusion: Fusion = "mean") -> Tensor:
    """Combine the maps of the heads (B, H, N, N) into (B, N, N) with rows that sum to 1.

    >>> fuse(torch.tensor([[[[1.0, 0.0]], [[0.5, 0.5]]]]), "max")
    tensor([[[0.6667, 0.3333]]])
    """
    fused = maps.mean(1) if fusion == "mean" else maps.amax(1) if fusion == "max" else maps.amin(1)
    return fused / fused.sum(-1, keepdim=True).clamp_min(torch.finfo(fused.dtype).tiny)


def relevance(
    model: nn.Module,
    anatomy: Anatomy,
    blocks: Sequence[Block],
    pixels: Tensor,
    *,
    fusion: Fusion = "mean",
    residual: float = 0.5,
    heads: Mapping[str, Sequence[int]] | None = None,
) -> list[Tensor]:
    """Returns R_1 … R_L (B, N, N) of images.

    Args:
        model: a plain vision transformer in evaluation mode, without wrappers; the caller disables gradients.
        anatomy: the description of the model at the size of the images.
        blocks: its blocks; see `square_blocks`.
        pixels: (B, C, h, w)
        fusion: how the heads are combined.
        residual: r, the weight of the skip connection, from 0 to 1.
        heads: the heads that are combined, by name of the block; all heads of blocks that are not named.
    """
    kept = heads or {}

    def fused(call: AttentionCall) -> Tensor:
        maps = call.map()
        return fuse(maps[:, list(kept[call.block])] if call.block in kept else maps, fusion)

    with record(model, blocks=[block.name for block in blocks], reduce=fused, anatomy=anatomy) as tape:
        model(pixels)
    return rollout([tape[block.name][0] for block in blocks], residual)


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    fusion: Fusion = "mean",
    residual: Share = 0.5,
    images: ImageCount | None = None,
    stored: StoredImages = 8,
) -> Measurement:
    """Relevance of the tokens of the image grid for the output, and its entropy after each layer.

    Args:
        model: a plain vision transformer: square maps of the same tokens in all layers.
        batches: yields (images, targets) or images; labels are not used.
        fusion: how the heads are combined.
        residual: r, the weight of the skip connection, from 0 to 1.
        images: number of images to use. Default: all.
        stored: number of images whose relevance map is stored.

    Returns:
        `map` (image, row, column), the share of each token of the grid in the row of R_L of the token that the output
        is computed from: the class token, or the mean of several (averaged patches, a distillation token); `entropy`
        (layer) in nats, of that row of R_l, averaged over images, with `entropy_error`; `prefix_share` (), the mean
        share of the prefix tokens in the last layer.
    """

    settings = {"fusion": fusion, "residual": residual, "images": images, "stored": stored}
    by_rollout = partial(relevance, fusion=fusion, residual=residual)
    return measure_relevance(_NAME, model, batches, by_rollout, images, stored, settings)
