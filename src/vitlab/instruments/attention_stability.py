"""Attention stability: similarity of attention on clean and corrupted versions of an image (TAPADL Figs. 1, 5).

    s = ⟨A, A'⟩ / (|A| |A'|)   for each image, layer and head, A the map of the clean image, A' of the corrupted one

Shape legend: B batch, T windows, H heads, N query tokens, M key tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.batches import Batches
from vitlab.core.bounds import ChannelDeviations, ChannelMeans, Range, Seed, Severity, Weight
from vitlab.core.measurement import Card, Measurement
from vitlab.corruptions import CorruptionName
from vitlab.instruments.shared.corrupted_pairs import clean_and_corrupted, corruption_function, normalisation
from vitlab.instruments.shared.one_pass import Result, observe, table
from vitlab.instruments.shared.per_image_sums import PerImageObserver, split_windows
from vitlab.instruments.shared.predictions import device_of
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

    >>> import torch
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
    corruption: CorruptionName | Callable[[Tensor], Tensor] = "gaussian_noise",
    severity: Severity = 3,
    sigma: Weight | None = None,
    seed: Seed = 0,
    unit: Unit = "map",
    bins: Annotated[int, Range(1, 10_000)] = 50,
    mean: ChannelMeans | None = None,
    std: ChannelDeviations | None = None,
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
        5). Of parts of the images (`--repeats`), quantiles are computed from the histogram, to within about a bin.
    """
    corrupt = corruption_function(corruption, severity, sigma, seed)
    channel_mean, channel_std = normalisation(model, batches, mean, std, "attention_stability")
    items = clean_and_corrupted(batches, corrupt, channel_mean, channel_std, device_of(model))
    pairs = Batches(items, channel_mean, channel_std, fingerprint=getattr(batches, "fingerprint", ""))
    measured = observe(model, pairs, [_SimilarityObserver(unit, bins)])[0]
    name = corruption if isinstance(corruption, str) else getattr(corruption, "__qualname__", type(corruption).__name__)
    settings = {"corruption": name, "severity": severity, "sigma": sigma, "seed": seed, "unit": unit}
    about = {**measured.provenance, "images": measured.provenance["images"] // 2}
    return replace(measured, settings=settings, provenance=about)


def _shares(values: np.ndarray, bins: int) -> np.ndarray:
    """(H, images) -> fraction of images in each bin, (H, bins); rounding can give a cosine slightly above 1."""
    place = (values * bins).astype(np.int64).clip(0, bins - 1)
    counts = np.bincount((place + bins * np.arange(len(values))[:, None]).ravel(), minlength=bins * len(values))
    shares: np.ndarray = counts.reshape(len(values), bins) / values.shape[1]
    return shares
