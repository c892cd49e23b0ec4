"""Attention stability: similarity of attention on clean and corrupted versions of an image (TAPADL Figs. 1, 5).

    s = ⟨A, A'⟩ / (|A| |A'|)   for each image, layer and head, A the map of the clean image, A' of the corrupted one

Shape legend: B batch, T windows, H heads, N query tokens, M key tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.measurement import Card, Measurement
from vitlab.corruptions.apply import corrupt_pixels
from vitlab.corruptions.noise import gaussian_noise
from vitlab.corruptions.randomness import Randomness
from vitlab.instruments.shared.one_pass import Result, observe, table
from vitlab.instruments.shared.per_image_sums import PerImageObserver, split_windows
from vitlab.instruments.shared.predictions import device_of
from vitlab.preprocessing import normalisation_of
from vitlab.recording.attention_call import AttentionCall

CARD = Card(
    title="Likeness of attention on clean and corrupted images, by layer and head",
    paper="TAPADL Figs. 1, 5",
    cost="two forwards",
    inputs="images",
    passes="several",
    needs=("attention",),
    higher_is_better=True,
)

Unit = Literal["map", "row"]
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def similarity(products: Tensor, windows: int, unit: Unit) -> Tensor:
    """Cosine similarity of two maps from the inner products of their rows.

    Args:
        products: (3, B·T, H, N), A·A', A·A and A'·A' of every row.
        windows: T, the number of windows of an image; the map includes all of them.
        unit: `"map"`, similarity of the maps as vectors, or `"row"`, mean similarity of the rows.

    Returns:
        (B, H)

    >>> products = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]).reshape(3, 1, 1, 2)  # equal, orthogonal rows
    >>> similarity(products, 1, "map"), similarity(products * torch.tensor([4.0, 1.0]), 1, "map")
    (tensor([[0.5000]]), tensor([[0.8000]]))
    """
    if unit == "row":
        both, clean, other = products
        return split_windows((both / (clean * other).sqrt()).mean(-1), windows).mean(1)
    sums = products.reshape(3, -1, windows, *products.shape[2:]).sum((2, 4))
    return sums[0] / (sums[1] * sums[2]).sqrt()


class _SimilarityObserver(PerImageObserver):
    """Compares the first half of every batch, clean images, with the second half, their corrupted versions."""

    kind = "attention_stability"
    attention = "calls"

    def __init__(self, unit: Unit, bins: int) -> None:
        if unit not in get_args(Unit):
            raise unknown("unit of attention_stability", unit, get_args(Unit))
        if bins < 1:
            raise VitlabError(f"{self.kind}: invalid bins={bins}; expected at least 1")
        self._unit, self._bins = unit, bins

    def call(self, block: Block, call: AttentionCall) -> None:
        """-> (B, H, 1)."""
        if block.name in self.buffer:
            products = call.statistics(["twins"])["twins"]
            self.buffer.put(block.name, similarity(products, call.queries.windows, self._unit)[..., None])

    def result(self, anatomy: Anatomy) -> Result:
        """Distributions over images."""
        layers = [values[..., 0].T for values in self.per_image()]  # (H, images)
        everything = np.concatenate([layer.ravel() for layer in layers])
        histograms = [_shares(layer, self._bins) for layer in layers]
        heads = max(len(layer) for layer in layers)
        tails = [np.quantile(layer, QUANTILES, axis=1) for layer in layers]
        values = {
            "mean": table([layer.mean(1) for layer in layers]),
            "quantiles": np.stack([table(each) for each in zip(*tails, strict=True)]),
            "histogram": np.stack(
                [np.pad(h, ((0, heads - len(h)), (0, 0)), constant_values=np.nan) for h in histograms]
            ),
            "distribution": _shares(everything[None], self._bins)[0],
            "overall": np.array(everything.mean()),
            "quantile_level": np.array(QUANTILES),
        }
        dims: dict[str, tuple[str, ...]] = {
            "mean": ("layer", "head"),
            "quantiles": ("quantile", "layer", "head"),
            "histogram": ("layer", "head", "similarity"),
            "distribution": ("similarity",),
            "overall": (),
            "quantile_level": ("quantile",),
        }
        centres = tuple((i + 0.5) / self._bins for i in range(self._bins))
        pooling = {"quantile_level": ("constant",), "quantiles": ("share_quantiles", "histogram", "quantile_level")}
        return Result(values, dims, {**self.axes(heads), "quantile": QUANTILES, "similarity": centres}, pooling)


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    corruption: str | Callable[[Tensor], Tensor] = "gaussian_noise",
    severity: int = 3,
    sigma: float | None = None,
    seed: int = 0,
    unit: Unit = "map",
    bins: int = 50,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Measurement:
    """Distribution of the cosine similarity between attention on clean and corrupted images, by layer and head.

    Each batch contains clean images and their corrupted versions, so that neither maps nor queries need to be stored.

    Args:
        model: a model with attention maps; it runs in evaluation mode.
        batches: yields (images, targets) or images.
        corruption: name of an ImageNet-C corruption, or a function of pixels (B, C, h, w) in [0, 1] on the model's
            device.
        severity: severity of a named corruption, 1 to 5. The paper does not state its severity; 3 is our choice.
        sigma: if given, use Gaussian noise of this standard deviation in pixels instead of `corruption`.
        seed: random seed; the noise of an image depends on it and on the index of the image.
        unit: `"map"` compares the whole map of a head as one vector, `"row"` averages the similarity of the rows.
            TAPADL does not state which; the map is our choice.
        bins: number of histogram bins over [0, 1].
        mean, std: normalisation of the images; needed if batches are not `Batches` and the model does not declare it.

    Returns:
        `mean` (layer, head); `quantiles` (quantile, layer, head); `histogram` (layer, head, similarity), the share of
        images in each bin; `distribution` (similarity) and `overall` (), the same over all layers and heads (Figs. 1,
        5).
    """
    corrupt = _corruption_function(corruption, severity, sigma, seed)
    channel_mean, channel_std = _normalisation(model, batches, mean, std)
    items = _clean_and_corrupted(batches, corrupt, channel_mean, channel_std, device_of(model))
    pairs = Batches(items, channel_mean, channel_std, fingerprint=getattr(batches, "fingerprint", ""))
    measured = observe(model, pairs, [_SimilarityObserver(unit, bins)])[0]
    name = corruption if isinstance(corruption, str) else getattr(corruption, "__qualname__", type(corruption).__name__)
    settings = {"corruption": name, "severity": severity, "sigma": sigma, "seed": seed, "unit": unit}
    about = {**measured.provenance, "images": measured.provenance["images"] // 2}
    return replace(measured, settings=settings, provenance=about)


def _clean_and_corrupted(
    batches: Iterable[Any],
    corrupt: Callable[..., Tensor],
    mean: Sequence[float],
    std: Sequence[float],
    device: torch.device,
) -> Iterator[Tensor]:
    """Yield clean images and their corrupted versions, half a batch at a time to keep the batch size of the user."""
    shift, scale = (torch.tensor(part, device=device)[:, None, None] for part in (mean, std))
    bounds: list[Tensor] = []
    start = 0
    for item in batches:
        images = item[0] if isinstance(item, (tuple, list)) else item
        if not isinstance(images, Tensor) or images.ndim != 4 or not len(images):
            yield images  # `observe` raises the error
            return
        if len(mean) not in (1, images.shape[1]):
            raise VitlabError(f"mean and std have {len(mean)} channels; expected {images.shape[1]}, as in the images")
        for half in images.chunk(2):
            half = half.to(device)
            pixels = half.float() * scale + shift
            bounds.append(torch.stack(torch.aminmax(pixels)))
            if start == 0 or device.type == "cpu":  # other checks would synchronise the device; they run at the end
                _check_range(bounds[-1:])
            pixels = corrupt(pixels.clamp(0, 1), range(start, start + len(half))).float()
            pair = torch.cat((half, ((pixels - shift) / scale).to(half.dtype)))
            start += len(half)
            del half, pixels  # free memory for the forward
            yield pair
            del pair
    _check_range(bounds)


def _corruption_function(
    corruption: Any, severity: int, sigma: float | None, seed: int
) -> Callable[[Tensor, Sequence[int]], Tensor]:
    """A function from pixels and image indices to corrupted pixels."""
    if sigma is not None:
        if not sigma >= 0:
            raise VitlabError(
                f"attention_stability: invalid sigma={sigma}; expected a standard deviation in pixels, for example 0.18"
            )
        level = sigma
        return lambda x, indices: gaussian_noise(x, Randomness.of(seed, "gaussian_noise", 0, indices, x.device), level)
    if isinstance(corruption, str):
        return lambda x, indices: corrupt_pixels(x, corruption, severity, seed=seed, indices=indices)
    if not callable(corruption):
        raise VitlabError(
            f"invalid corruption; expected a name or a function of pixels, not {type(corruption).__name__}"
        )
    return lambda x, indices: corruption(x)


def _check_range(bounds: Sequence[Tensor]) -> None:
    """Raise an error if the minimum or maximum pixel of a batch is outside [0, 1]; `observe` reports empty data."""
    low, high = torch.stack(list(bounds)).unbind(1) if bounds else torch.tensor([[0.0], [1.0]])
    least, most = float(low.min()), float(high.max())
    if math.isnan(least + most):
        raise VitlabError("attention_stability: some pixels are NaN; check the images")
    if not (least >= -0.01 and most <= 1.01):
        raise VitlabError(
            f"images * std + mean run from {least:.3g} to {most:.3g}, not 0 to 1; "
            "set mean= and std= to the normalisation of the images"
        )


def _normalisation(
    model: nn.Module, batches: Iterable[Any], mean: Sequence[float] | None, std: Sequence[float] | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std from the settings, else from the batches, else from the model."""
    for known in (
        (mean, std),
        (getattr(batches, "mean", None), getattr(batches, "std", None)),
        normalisation_of(model) or (None, None),
    ):
        if known[0] is not None and known[1] is not None:
            return tuple(map(float, known[0])), tuple(map(float, known[1]))
    raise VitlabError(
        "attention_stability needs the normalisation of the images, which is unknown; pass Batches, or mean= and std="
    )


def _shares(values: np.ndarray, bins: int) -> np.ndarray:
    """(H, images) -> fraction of images in each bin, (H, bins); rounding can give a cosine slightly above 1."""
    place = (values * bins).astype(np.int64).clip(0, bins - 1)
    counts = np.bincount((place + bins * np.arange(len(values))[:, None]).ravel(), minlength=bins * len(values))
    shares: np.ndarray = counts.reshape(len(values), bins) / values.shape[1]
    return shares
