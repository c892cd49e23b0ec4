"""Representational similarity: CKA between the features of layers (HDVW Figs. 10a, D.3).

    CKA = Σ_b HSIC₁(K_b, L_b) / √(Σ_b HSIC₁(K_b, K_b) Σ_b HSIC₁(L_b, L_b)),   K = X Xᵀ, L = Y Yᵀ

summed over mini-batches b. HSIC₁ is the unbiased estimator (Nguyen et al. 2021, Eq. 3), so that CKA does not depend on
the mini-batch size. It equals Σ_{i≠j} Ũ(K)_ij Ũ(L)_ij / (n(n−3)) with U-centred matrices (Székely and Rizzo 2014), an
inner product: square roots are real and CKA is at most 1. Only n×n matrices are stored.

Shape legend: n images of a mini-batch, N tokens, D channels, L layers, M layers of the other model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from vitlab.core.bounds import Length
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

_MIN_IMAGES = 4  # per mini-batch: HSIC₁ divides by n − 3


def gram(features: Tensor) -> Tensor:
    """K = X Xᵀ of centred features, (n, …) -> (n, n). Centring does not change HSIC₁ and reduces rounding errors.

    >>> gram(torch.tensor([[1.0], [3.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    rows = features.flatten(1)
    rows = rows - rows.mean(0)
    return rows @ rows.T


def centre(grams: Tensor) -> Tensor:
    """U-centring: set the diagonal to 0 and centre rows and columns without bias.

    Ũ_ij = K_ij − Σ_l K_il / (n−2) − Σ_l K_lj / (n−2) + Σ_lm K_lm / ((n−1)(n−2)) for i ≠ j, over l ≠ i and so on.

    Args:
        grams: (…, n, n), symmetric, n ≥ 4.

    >>> int(centre(torch.arange(5.0) + torch.arange(5.0)[:, None]).count_nonzero())  # a_i + a_j has no interaction
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
    >>> (own / (own.diag()[:, None] * own.diag()).sqrt()).tolist()  # CKA is invariant to scale and shift
    [[1.0, 1.0], [1.0, 1.0]]
    """
    n = first.shape[-1]
    return first.flatten(1) @ second.flatten(1).T / (n * (n - 3))


#: Pooling rules: CKA of several parts of the images is computed from the sums of their HSIC₁.
_POOLING = {
    **dict.fromkeys(("hsic", "hsic_own", "hsic_other"), ("sum",)),
    "cka": ("cka", "hsic", "hsic_own", "hsic_other"),
}


class _GramRecorder:
    """Gram matrices of the layers of one model on the latest mini-batch."""

    def __init__(self, model: nn.Module, at: str | Sequence[str], size: tuple[int, int], stack: ExitStack) -> None:
        self._model = model
        self._single_place = isinstance(at, str) or len(at) == 1
        self._grams: dict[str, Tensor] = {}
        self._sizes: dict[str, Tensor] = {}
        tape = stack.enter_context(record(model, "features", at=at, reduce=self._store, input_size=size))
        if not len(tape):
            raise VitlabError(f"representation_cka: no place {at!r} in family {tape.anatomy.family!r}; try block.out")

    def _store(self, feature: Feature) -> None:
        name = feature.block if self._single_place else f"{feature.block} {feature.place}"
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

    def check_not_constant(self, own: Tensor) -> None:
        """Raise an error if the features of a layer are equal for all images up to rounding: CKA is undefined."""
        sizes = torch.stack(list(self._sizes.values())).cpu().double()
        for name, hsic_own, size in zip(self.names, own, sizes, strict=True):
            if hsic_own <= 1e-24 * size**2:
                raise VitlabError(f"representation_cka: {name} has the same features for all images; CKA is undefined")


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    other: nn.Module | None = None,
    at: str | Annotated[Sequence[str], Length(1, 100)] = "block.out",
) -> Measurement:
    """Mini-batch CKA between the layers of a model, or between the layers of two models.

    Features are flattened, prefix tokens included; HDVW does not specify this.

    Args:
        model: any model with taps; it runs in evaluation mode.
        batches: yields (images, targets) or images, at least 4 per batch; smaller batches, such as a short last one,
            are skipped, and their images are counted as `left_out` in the provenance.
        other: the second model, run on the same images. Default: the first.
        at: taps or seams whose features are compared, such as `"block.out"` or `("block.mid", "block.out")`.

    Returns:
        `cka` (layer, other_layer), at most 1; 0 for unrelated features, where estimates can be slightly negative. The
        sums over mini-batches that it is computed from: `hsic` (layer, other_layer), `hsic_own` (layer) of each layer
        with itself, and `hsic_other` (other_layer).
    """
    models = [model] if other is None or other is model else [model, other]
    recorders: list[_GramRecorder] = []
    sums: list[Tensor] = []
    used = skipped = 0
    with ExitStack() as stack:
        for one in models:
            stack.enter_context(eval_mode(one))
        for images in map(_images, batches):
            if len(images) < _MIN_IMAGES:
                skipped += len(images)
                continue
            if not recorders:
                size = (int(images.shape[-2]), int(images.shape[-1]))
                recorders = [_GramRecorder(one, at, size, stack) for one in models]
            products = _products([recorder.run(images) for recorder in recorders])
            sums = [total + new for total, new in zip(sums, products, strict=True)] if sums else products
            used += len(images)
    if not used:
        raise VitlabError(
            f"representation_cka needs mini-batches of at least {_MIN_IMAGES} images; "
            f"all batches are smaller ({skipped} image(s) in total); use a larger batch size"
        )
    for recorder, own in zip(recorders, sums[1:], strict=False):
        recorder.check_not_constant(own)
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
        {"layer": recorders[0].names, "other_layer": recorders[-1].names},
        {"at": at if isinstance(at, str) else list(at), "other": None if other is None else type(other).__name__},
        about,
        pooling=_POOLING,
    )


def _products(centred: list[Tensor]) -> list[Tensor]:
    """HSIC₁ of a mini-batch: between the layers of the first and the last model, and of each layer with itself."""
    own = [torch.linalg.vecdot(x.flatten(1), x.flatten(1)) / (x.shape[-1] * (x.shape[-1] - 3)) for x in centred]
    return [hsic(centred[0], centred[-1]), own[0], own[-1]]


def _images(item: Any) -> Tensor:
    images = item[0] if isinstance(item, (tuple, list)) else item
    if not isinstance(images, Tensor) or images.ndim != 4:
        raise VitlabError("invalid batch; representation_cka needs batches of images of shape (B, C, h, w)")
    return images
