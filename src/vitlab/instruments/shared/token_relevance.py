"""Combine the attention maps of all layers into the relevance of each token for the output.

    rollout (Abnar & Zuidema 2020, "Quantifying attention flow in transformers"):
        R_l = (r I + (1 − r) A_l) R_{l−1},   A_l averaged over heads, r the weight of the skip connection
    gradient-weighted (Chefer et al. 2021, "Generic attention-model explainability", Eqs. 5, 6):
        R_l = R_{l−1} + mean_h max(0, ∂s/∂A_l ⊙ A_l) R_{l−1},   s the score of a class

Both start from R_0 = I.

Shape legend: B batch, H heads, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.adapters.wrappers import unwrap
from vitlab.core.anatomy import Anatomy, Block, TokenLayout
from vitlab.core.bounds import Range
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.provenance import provenance
from vitlab.core.statistics import standard_error
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.predictions import device_of, image_batches
from vitlab.interventions import intervene

#: Returns the relevance (B, N, N) after each layer, for a model, its description, its blocks and images.
Relevance = Callable[[nn.Module, Anatomy, Sequence[Block], Tensor], list[Tensor]]


def rollout(maps: Sequence[Tensor], residual: float = 0.5) -> list[Tensor]:
    """Returns R_1 … R_L.

    Args:
        maps: (B, N, N) of each layer, averaged over heads, rows sum to 1.
        residual: r, the weight of the skip connection, from 0 to 1.

    >>> uniform = torch.full((1, 2, 2), 0.5)
    >>> rollout([uniform, uniform])[-1][0]
    tensor([[0.6250, 0.3750],
            [0.3750, 0.6250]])
    """
    results: list[Tensor] = []
    relevance = _identity(maps[0])
    for each in maps:
        relevance = residual * relevance + (1 - residual) * each @ relevance
        results.append(relevance)
    return results


def propagated(weighted: Sequence[Tensor]) -> list[Tensor]:
    """Returns R_1 … R_L of gradient-weighted maps (B, N, N).

    >>> propagated([torch.ones(1, 1, 1), torch.ones(1, 1, 1)])[-1].item()
    4.0
    """
    results: list[Tensor] = []
    relevance = _identity(weighted[0])
    for each in weighted:
        relevance = relevance + each @ relevance
        results.append(relevance)
    return results


def of_output(relevance: Tensor, tokens: Tensor) -> Tensor:
    """Returns (B, N): the mean of the rows of some tokens, a mask (N,)."""
    return relevance[:, tokens].mean(1)


def output_tokens(model: nn.Module, anatomy: Anatomy, last: Block, pixels: Tensor, layout: TokenLayout) -> Tensor:
    """Returns (N,) booleans: the tokens after the last block that the logits depend on, by a gradient.

    The class token; both tokens of a distilled model; the patches where the output is their mean, with or without a
    class token or register tokens. For outputs that are not logits: the first prefix token, without one all tokens.

    Args:
        model: a plain vision transformer in evaluation mode, without wrappers.
        anatomy: its description at the size of the images.
        last: its last block.
        pixels: (B, C, h, w), of which the first image is used.
        layout: of the tokens.
    """
    found = torch.zeros(layout.tokens, dtype=torch.bool, device=pixels.device)
    after: list[Tensor] = []

    def start_of_graph(tokens: Tensor) -> Tensor:
        after.append(tokens.detach().requires_grad_())
        return after[-1]

    end = ExitStack()
    if last.seam("block.out") is not None:
        end.enter_context(intervene(model, "replace", block=last.name, value=start_of_graph, anatomy=anatomy))
    with torch.enable_grad(), end:
        output = model(pixels[:1])
        logits = getattr(output, "logits", output)
        if after and isinstance(logits, Tensor) and logits.ndim == 2 and logits.requires_grad:
            (gradient,) = torch.autograd.grad(logits.square().sum(), after[-1:], allow_unused=True)
            found = found if gradient is None else gradient[0].ne(0).any(1)
    if not found.any():
        found[: 1 if layout.prefix else None] = True
    return found


def row_entropy(rows: Tensor) -> np.ndarray:
    """Returns the entropy of rows (B, N) in nats, after normalisation to sum 1.

    >>> float(row_entropy(torch.ones(1, 4))[0].round(4))
    1.3863
    """
    shares = rows.double() / rows.double().sum(-1, keepdim=True).clamp_min(1e-300)
    entropy: np.ndarray = torch.special.entr(shares).sum(-1).cpu().numpy()
    return entropy


def square_blocks(anatomy: Anatomy, instrument: str) -> tuple[list[Block], TokenLayout]:
    """Returns the blocks and their token layout; raises an error unless all attend over the same tokens."""
    blocks = [block for block in anatomy.blocks if block.mixer.queries is not None]
    first = blocks[0].mixer.queries if blocks else None
    if first is None:
        raise VitlabError(f"{instrument}: family {anatomy.family!r} has no attention maps")
    for block in anatomy.blocks:
        queries, keys = block.mixer.queries, block.mixer.keys
        if queries is None or keys is None or queries != first or keys != first or queries.windows > 1:
            raise VitlabError(
                f"{instrument} multiplies the maps of all layers, which must be square and of the same tokens; "
                f"{block.name} of family {anatomy.family!r} differs; use a plain vision transformer"
            )
    return blocks, first


#: A number of images whose relevance map is stored.
StoredImages = Annotated[int, Range(1, 10_000)]


def measure_relevance(
    name: str,
    model: nn.Module,
    batches: Iterable[Any],
    relevance: Relevance,
    images: int | None,
    stored: int,
    settings: Mapping[str, Any],
) -> Measurement:
    """Measure the relevance of the tokens of the image grid for the output.

    Args:
        name: of the instrument.
        model: a plain vision transformer.
        batches: yields (images, targets) or images.
        relevance: computes R_1 … R_L of a batch.
        images: number of images to use; None for all.
        stored: number of images whose relevance map is stored.
        settings: of the instrument, for the measurement.

    Returns:
        `map` (image, row, column), the share of each token of the grid in the row of R_L of the token that the output
        is computed from: the class token, or the mean of several (averaged patches, a distillation token); `entropy`
        (layer) in nats, of that row of R_l, averaged over images, with `entropy_error`; `prefix_share` (), the mean
        share of the prefix tokens in the last layer.
    """
    inner, device = unwrap(model), device_of(model)
    rows_of_images: list[np.ndarray] = []
    entropies: list[np.ndarray] = []
    blocks, layout, read = list[Block](), TokenLayout((0, 0)), torch.empty(0)
    anatomy: Anatomy | None = None
    with eval_mode(inner):
        for pixels in image_batches(batches, device, name, images):
            if anatomy is None:
                anatomy = describe(inner, (int(pixels.shape[-2]), int(pixels.shape[-1])))
                blocks, layout = square_blocks(anatomy, name)
                read = output_tokens(inner, anatomy, blocks[-1], pixels, layout)
            rows = [of_output(each.detach(), read) for each in relevance(inner, anatomy, blocks, pixels)]
            entropies.append(np.stack([row_entropy(row) for row in rows], 1))
            last = rows[-1].double()
            rows_of_images.append((last / last.sum(1, keepdim=True).clamp_min(1e-300)).cpu().numpy())
    shares, entropy = np.concatenate(rows_of_images), np.concatenate(entropies)
    values = {
        "map": shares[:stored, layout.prefix :].reshape(-1, *layout.grid),
        "entropy": entropy.mean(0),
        "entropy_error": standard_error(entropy),
        "prefix_share": np.array(shares[:, : layout.prefix].sum(1).mean()),
    }
    dims = {"map": ("image", "row", "column"), "entropy": ("layer",), "entropy_error": ("layer",), "prefix_share": ()}
    axes = {"layer": tuple(block.name for block in blocks)}
    about = provenance(device=str(device), images=len(entropy), data=getattr(batches, "fingerprint", ""))
    errors, pooling = {"entropy": "entropy_error"}, {"map": ("concatenate", "image")}
    subject = type(inner).__name__
    return Measurement(name, subject, values, dims, axes, dict(settings), about, errors, pooling)


def _identity(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device).expand_as(like)
