"""Representational similarity: how alike the features of two layers are (HDVW Figs. 10a, D.3).

    CKA = Σ_b HSIC₁(K_b, L_b) / √(Σ_b HSIC₁(K_b, K_b) Σ_b HSIC₁(L_b, L_b)),   K = X Xᵀ, L = Y Yᵀ

summed over mini-batches b; HSIC₁ is the unbiased estimator (Nguyen et al. 2021, Eq. 3), so that CKA does not depend on
the size of the mini-batches. It equals Σ_{i≠j} Ũ(K)_ij Ũ(L)_ij / (n(n−3)) with U-centred matrices (Székely and Rizzo
2014), a true inner product: no root of a negative number, no CKA above 1. Only n×n matrices are held.

Shape legend: n images of a mini-batch, N tokens, D channels, L layers, M layers of the other model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.pooling import derive
from vitlab.core.provenance import provenance
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.predictions import device_of
from vitlab.recording.tape import Feature, record

CARD = Card(
    title="CKA between the features of all layers, of one model or two",
    paper="HDVW Figs. 10a, D.3",
    cost="one forward of each model",
    inputs="images",
    passes="one",
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

    >>> int(centre(torch.arange(5.0) + torch.arange(5.0)[:, None]).count_nonzero())  # a_i + a_j tells nothing of pairs
    0
    """
    n = grams.shape[-1]
    off = 1 - torch.eye(n, dtype=grams.dtype, device=grams.device)
    pairs = grams * off
    rows = pairs.sum(-1, keepdim=True) / (n - 2)
    return off * (pairs - rows - rows.mT + rows.sum(-2, keepdim=True) / (n - 1))


def hsic(first: Tensor, second: Tensor) -> Tensor:
    """HSIC₁ between all pairs of U-centred Gram matrices: (L, n, n) and (M, n, n) -> (L, M).

    >>> x = torch.tensor([[0.0], [1.0], [3.0], [7.0], [8.0]])
    >>> u = centre(torch.stack([gram(x), gram(2 * x + 1)]))
    >>> own = hsic(u, u)
    >>> (own / (own.diag()[:, None] * own.diag()).sqrt()).tolist()  # CKA: neither scale nor shift matters
    [[1.0, 1.0], [1.0, 1.0]]
    """
    n = first.shape[-1]
    return first.flatten(1) @ second.flatten(1).T / (n * (n - 3))


#: CKA of several parts of the images is that of their sums of HSIC₁.
_POOLING = {
    **dict.fromkeys(("hsic", "hsic_own", "hsic_other"), ("sum",)),
    "cka": ("cka", "hsic", "hsic_own", "hsic_other"),
}


class _Layers:
    """The layers of one model: their Gram matrices on the latest mini-batch, and what they were compared with."""

    def __init__(self, model: nn.Module, at: str | Sequence[str], size: tuple[int, int], stack: ExitStack) -> None:
        self._model = model
        self._short = isinstance(at, str) or len(at) == 1
        self._grams: dict[str, Tensor] = {}
        self._sizes: dict[str, Tensor] = {}
        tape = stack.enter_context(record(model, "features", at=at, reduce=self._note, input_size=size))
        if not len(tape):
            raise VitlabError(
                f"representation_cka finds no place {at!r} in family {tape.anatomy.family!r}; try block.out"
            )

    def _note(self, feature: Feature) -> None:
        name = feature.block if self._short else f"{feature.block} {feature.place}"
        tokens = feature.tokens if feature.tokens.dtype == torch.float64 else feature.tokens.float()
        with torch.autocast(tokens.device.type, enabled=False):
            self._grams[name] = gram(tokens)
            self._sizes[name] = tokens.flatten(1).mean(0).square().sum()

    def run(self, images: Tensor) -> Tensor:
        """U-centred Gram matrices of all layers, (L, n, n) in float64 on the CPU."""
        self._model(images.to(device_of(self._model)))
        centred = centre(torch.stack(list(self._grams.values())).cpu().double())
        for name, finite in zip(self.names, centred.flatten(1).isfinite().all(1), strict=True):
            if not finite:
                raise VitlabError(
                    f"representation_cka: features of {name} are not finite; "
                    "check the model's weights and the images for NaN"
                )
        return centred

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the layers in execution order."""
        return tuple(self._grams)

    def refuse_constant(self, own: Tensor) -> None:
        """An error where a layer's features are the same for all images, up to rounding: it is like nothing."""
        sizes = torch.stack(list(self._sizes.values())).cpu().double()
        for name, found, size in zip(self.names, own, sizes, strict=True):
            if found <= 1e-24 * size**2:
                raise VitlabError(
                    f"representation_cka: {name} has the same features for all images, so CKA is undefined"
                )


def measure(
    model: nn.Module, batches: Iterable[Any], *, other: nn.Module | None = None, at: str | Sequence[str] = "block.out"
) -> Measurement:
    """Mini-batch CKA between the layers of a model, or between those of two models.

    Features are flattened, prefix tokens included; HDVW does not say what it takes.

    Args:
        model: any model with taps; it runs in evaluation mode.
        batches: yields (images, targets) or images, at least 4 at a time; a batch of fewer, such as a short last one,
            is left out, and its images are counted as `left_out` in the provenance.
        other: the second model, which is given the same images; by default the first.
        at: taps or seams whose features are compared, such as `"block.out"` or `("block.mid", "block.out")`.

    Returns:
        `cka` (layer, other_layer), at most 1; 0 means unrelated, and estimates of it may lie a little below. The sums
        over mini-batches that it is computed from: `hsic` (layer, other_layer), `hsic_own` (layer) of each layer with
        itself, and `hsic_other` (other_layer).
    """
    models = [model] if other is None or other is model else [model, other]
    layers: list[_Layers] = []
    sums: list[Tensor] = []
    used = skipped = 0
    with ExitStack() as stack:
        for one in models:
            stack.enter_context(eval_mode(one))
        for images in map(_images, batches):
            if len(images) < _FEWEST:
                skipped += len(images)
                continue
            if not layers:
                layers = [_Layers(one, at, (int(images.shape[-2]), int(images.shape[-1])), stack) for one in models]
            new = _products([layer.run(images) for layer in layers])
            sums = [old + more for old, more in zip(sums, new, strict=True)] if sums else new
            used += len(images)
    if not used:
        raise VitlabError(
            f"representation_cka needs mini-batches of at least {_FEWEST} images, since HSIC₁ divides by n − 3; "
            f"the batches hold fewer, {skipped} image(s) in all"
        )
    for layer, own in zip(layers, sums[1:], strict=False):
        layer.refuse_constant(own)
    about = provenance(
        device=str(device_of(model)), images=used, left_out=skipped, data=getattr(batches, "fingerprint", "")
    )
    dims = {"hsic": ("layer", "other_layer"), "hsic_own": ("layer",), "hsic_other": ("other_layer",)}
    dims |= {"cka": ("layer", "other_layer")}
    return Measurement(
        "representation_cka",
        type(model).__name__,
        derive({name: each.numpy() for name, each in zip(dims, sums, strict=False)}, _POOLING),
        dims,
        {"layer": layers[0].names, "other_layer": layers[-1].names},
        {"at": at if isinstance(at, str) else list(at), "other": None if other is None else type(other).__name__},
        about,
        pooling=_POOLING,
    )


def _products(centred: list[Tensor]) -> list[Tensor]:
    """HSIC₁ of a mini-batch: between the layers of the first model and the last, and of each layer with itself."""
    own = [torch.linalg.vecdot(x.flatten(1), x.flatten(1)) / (x.shape[-1] * (x.shape[-1] - 3)) for x in centred]
    return [hsic(centred[0], centred[-1]), own[0], own[-1]]


def _images(item: Any) -> Tensor:
    images = item[0] if isinstance(item, (tuple, list)) else item
    if not isinstance(images, Tensor) or images.ndim != 4:
        raise VitlabError("representation_cka needs batches of images of shape (B, C, h, w)")
    return images
