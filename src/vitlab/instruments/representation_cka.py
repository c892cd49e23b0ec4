"""Representational similarity: how alike the features of two layers are (HDVW Figs. 10a, D.3).

    CKA = Σ_b HSIC₁(K_b, L_b) / √(Σ_b HSIC₁(K_b, K_b) Σ_b HSIC₁(L_b, L_b)),   K = X Xᵀ, L = Y Yᵀ

summed over mini-batches b; HSIC₁ is the unbiased estimator (Nguyen et al. 2021, Eq. 3), so that CKA does not depend on
the size of the mini-batches. It equals Σ_{i≠j} Ũ(K)_ij Ũ(L)_ij / (n(n−3)) with U-centred matrices (Székely and Rizzo
2014), a true inner product: no root of a negative number, no CKA above 1. Only n×n matrices are held.

Shape legend: n images of a mini-batch, N tokens, D channels, L layers, M layers of the other model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.instruments.observation import evaluation
from vitlab.instruments.predictions import device_of
from vitlab.recording import Feature, record

CARD = Card(
    title="CKA between the features of all layers, of one model or two",
    paper="HDVW Figs. 10a, D.3",
    cost="one forward of each model",
)

_FEWEST = 4  # images of a mini-batch: HSIC₁ divides by n − 3


def gram(features: Tensor) -> Tensor:
    """K = X Xᵀ of centred features, (n, …) -> (n, n): HSIC₁ does not see the mean, and rounding is smaller without it.

    >>> gram(torch.tensor([[1.0], [3.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    rows = features.flatten(1)
    rows = rows - rows.mean(0)
    return rows @ rows.T


def centre(grams: Tensor) -> Tensor:
    """U-centring: the diagonal set to 0, and rows and columns made to sum to 0 without bias.

    Ũ_ij = K_ij − Σ_l K_il / (n−2) − Σ_l K_lj / (n−2) + Σ_lm K_lm / ((n−1)(n−2)) for i ≠ j, over l ≠ i and so on.

    Args:
        grams: (…, n, n), symmetric, n ≥ 4.

    >>> centre(torch.arange(5.0) + torch.arange(5.0)[:, None])  # a_i + a_j tells nothing of pairs
    tensor([[0., 0., 0., 0., 0.],
            [0., 0., 0., 0., 0.],
            [0., 0., 0., 0., 0.],
            [0., 0., 0., 0., 0.],
            [0., 0., 0., 0., 0.]])
    """
    n = grams.shape[-1]
    off = 1 - torch.eye(n, dtype=grams.dtype, device=grams.device)
    pairs = grams * off
    rows = pairs.sum(-1, keepdim=True) / (n - 2)
    return off * (pairs - rows - rows.mT + rows.sum(-2, keepdim=True) / (n - 1))


def hsic(first: Sequence[Tensor] | Tensor, second: Sequence[Tensor] | Tensor) -> Tensor:
    """HSIC₁ between all pairs of Gram matrices: L and M times (n, n) -> (L, M), in float64.

    >>> x = torch.tensor([[0.0], [1.0], [3.0], [7.0], [8.0]])
    >>> k = [gram(x), gram(2 * x + 1)]
    >>> table = hsic(k, k)
    >>> table / (table.diag()[:, None] * table.diag()).sqrt()  # CKA does not see scale and shift
    tensor([[1., 1.],
            [1., 1.]], dtype=torch.float64)
    """
    one, two = (centre(torch.stack(list(grams)).double()).flatten(1) for grams in (first, second))
    n = first[0].shape[-1]
    return one @ two.T / (n * (n - 3))


def measure(
    model: nn.Module, batches: Iterable[Any], *, other: nn.Module | None = None, at: str | Sequence[str] = "block.out"
) -> Measurement:
    """Mini-batch CKA between the layers of a model, or between those of two models.

    Features are flattened, prefix tokens included; HDVW does not say what it takes.

    Args:
        model: any model with taps; it runs in evaluation mode.
        batches: yields (images, targets) or images, at least 4 at a time; a last batch of fewer is left out, and
            counted as `left_out` in the provenance.
        other: the second model, which is given the same images; by default the first.
        at: taps or seams whose features are compared, such as `"block.out"` or `("block.mid", "block.out")`.

    Returns:
        `cka` (layer, other_layer), at most 1; 0 means unrelated, and estimates of it may lie a little below.
    """
    models = [model] if other is None else [model, other]
    seen: list[dict[str, Tensor]] = [{} for _ in models]
    power: list[dict[str, float]] = [{} for _ in models]
    totals: list[Tensor] = []
    used = skipped = 0
    with ExitStack() as stack:
        for one in models:
            stack.enter_context(evaluation(one))
        opened = False
        for images in _checked(batches):
            if not opened:
                size = (int(images.shape[-2]), int(images.shape[-1]))
                for one, grams, means in zip(models, seen, power, strict=True):
                    _listen(one, at, size, grams, means, stack)
                opened = True
            if len(images) < _FEWEST:
                skipped += len(images)
                continue
            for one in models:
                one(images.to(device_of(one)))
            new = _products(seen)
            totals = [a + b for a, b in zip(totals, new, strict=True)] if totals else new
            used += len(images)
    if not totals:
        raise VitlabError(
            f"representation_cka needs mini-batches of at least {_FEWEST} images: its unbiased estimator divides by n − 3"
            + (f"; these batches are smaller, {skipped} image(s) in all" if skipped else "; there are none")
        )
    cka = _normalise(totals, seen, power)
    axes = {"layer": tuple(seen[0]), "other_layer": tuple(seen[-1])}
    about = provenance(
        device=str(device_of(model)), images=used, left_out=skipped, data=getattr(batches, "fingerprint", "")
    )
    settings = {"at": at if isinstance(at, str) else list(at), "other": None if other is None else type(other).__name__}
    dims = {"cka": ("layer", "other_layer")}
    return Measurement("representation_cka", type(model).__name__, {"cka": cka.numpy()}, dims, axes, settings, about)
