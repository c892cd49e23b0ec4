"""Softmax gradient: the gradient of softmax is largest for uniform attention (CB Sec. 3.1, Fig. 5).

    a = softmax(λ s),  J_jk = ∂a_j / ∂s_k = λ (1[j = k] a_j − a_j a_k),  ‖J‖_* = tr J = λ Σ_j (a_j − a_j²) ≤ λ (1 − 1/N)

Shape legend: B batch, H heads, N tokens of a row, n rows of a chunk, M key tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.bounds import Range
from vitlab.core.measurement import Card, Measurement
from vitlab.core.pooling import derive
from vitlab.instruments.shared.one_pass import Result, observe, table
from vitlab.instruments.shared.per_image_sums import RowSumObserver
from vitlab.recording.attention_call import AttentionCall, Rows, entropy

CARD = Card(
    title="Steepness of softmax at the model's attention, against its entropy",
    paper="CB Sec. 3.1, Fig. 5",
    cost="one forward",
    inputs="images",
    passes="shared",
    needs=("attention",),
)

#: Pooling rules: how values are computed from sums over rows.
_POOLING = {
    **dict.fromkeys(("moments", "norms_by_entropy", "rows_by_entropy"), ("sum",)),
    **dict.fromkeys(("bound", "scale"), ("constant",)),
    "correlation": ("correlation", "moments"),
    "by_entropy": ("ratio", "norms_by_entropy", "rows_by_entropy"),
}


def nuclear_norm(attention: Tensor, scale: float = 1.0) -> Tensor:
    """Nuclear norm of the softmax Jacobian, which equals its trace: λ (1 − Σ_j a_j²).

    Args:
        attention: (..., N), rows that sum to 1.
        scale: λ.

    Returns:
        (...)

    >>> nuclear_norm(torch.full((4,), 0.25)), nuclear_norm(torch.tensor([1.0, 0.0]))
    (tensor(0.7500), tensor(0.))
    """
    squares: Tensor = torch.linalg.vecdot(attention, attention)
    return scale * (1 - squares)


def plane(extent: float = 4.0, points: int = 81, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Softmax of two logits on a grid (Fig. 5): a_1 = 1 / (1 + exp λ(x_2 − x_1)) and ‖J‖_* = 2 λ a_1 (1 − a_1).

    Returns:
        The coordinates (points,), a_1 and the norm, both (points, points), x_1 along the first axis.

    >>> x, first, norm = plane(points=3)
    >>> x.tolist(), norm.diagonal().tolist()
    ([-4.0, 0.0, 4.0], [0.5, 0.5, 0.5])
    """
    x = np.linspace(-extent, extent, points)
    first = 1 / (1 + np.exp(scale * (x[None, :] - x[:, None])))
    return x, first, 2 * scale * first * (1 - first)


def curve(tokens: int, points: int = 65, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Entropy and nuclear norm of rows with one key of weight p and N − 1 equal keys, from p = 1 to uniform, p = 1/N.

    H = −p log p − (1 − p) log((1 − p) / (N − 1)) and ‖J‖_* = λ (1 − p² − (1 − p)² / (N − 1)). Entropy does not
    determine the norm: other families of rows give other curves between the same end points.

    Returns:
        Entropies and norms, both (points,).

    >>> h, norm = curve(4, points=2)
    >>> [round(float(v), 4) for v in (*h, *norm)]
    [0.0, 1.3863, 0.0, 0.75]
    """
    p = np.linspace(1.0, 1.0 / tokens, points)
    rest = (1 - p) / max(tokens - 1, 1)
    spread = np.where(rest > 0, (1 - p) * np.log(np.where(rest > 0, rest, 1.0)), 0.0)
    return -p * np.log(p) - spread + 0.0, scale * (1 - p**2 - (1 - p) * rest)


class Accumulator(RowSumObserver):
    """Accumulates moments of norm and entropy, and the sum of norms in bins of entropy."""

    kind = "softmax_gradient"

    def __init__(self, bins: int = 20) -> None:
        self.settings = {"bins": bins}
        self._bins = bins
        self._scale: dict[str, float] = {}
        self._keys: dict[str, int] = {}

    def rows(self, block: Block, call: AttentionCall, rows: Rows) -> None:
        """Also store λ; it is unknown if the model returns attention weights instead of queries and keys."""
        self._scale[block.name] = float("nan") if call.q is None else call.scale
        self._keys[block.name] = rows.weights.shape[-1]
        super().rows(block, call, rows)

    def sums(self, block: Block, rows: Rows) -> tuple[Tensor, ...]:
        """-> (B·T, H, 6 + 2 bins): count; sums of norm, entropy, squares and product; norms and counts per bin."""
        norm, dense = nuclear_norm(rows.weights).double(), entropy(rows.weights).double()
        share = dense / np.log(max(rows.weights.shape[-1], 2))
        where = (share.nan_to_num(0.0) * self._bins).long().clamp(0, self._bins - 1)
        empty = torch.zeros((*norm.shape[:2], self._bins), dtype=norm.dtype, device=norm.device)
        ones = torch.ones_like(norm)
        moments = torch.stack((ones, norm, dense, norm * norm, dense * dense, norm * dense)).sum(-1).movedim(0, -1)
        return (torch.cat((moments, empty.scatter_add(-1, where, norm), empty.scatter_add(-1, where, ones)), -1),)

    def values(self, block: Block, *sums: Tensor) -> Tensor:
        """The sums, unchanged; they are also summed over images."""
        return sums[0]

    def result(self, anatomy: Anatomy) -> Result:
        """Means by layer and head, and by entropy."""
        layers = [sums.sum(0) for sums in self.per_image()]  # (H, 6 + 2 bins)
        names = [block.name for block in self.blocks]
        keys = np.array([self._keys[name] for name in names])
        mean = table([layer[:, 1] / layer[:, 0] for layer in layers])
        norms_by_entropy, rows_by_entropy = np.stack([layer[:, 6:].sum(0).reshape(2, -1) for layer in layers], 1)
        x, first, steep = plane()
        dense, norms = curve(int(keys.max()))
        sums = {
            "moments": np.stack([table(each) for each in zip(*(layer[:, :6].T for layer in layers), strict=True)], -1),
            "norms_by_entropy": norms_by_entropy,
            "rows_by_entropy": rows_by_entropy,
        }
        values = {
            "mean": mean,
            "bound": 1 - 1 / keys,
            "scale": np.array([self._scale[name] for name in names]),
            **derive(sums, _POOLING),
            "plane_softmax": first,
            "plane_norm": steep,
            "curve_entropy": dense,
            "curve_norm": norms,
        }
        dims: dict[str, tuple[str, ...]] = {
            **dict.fromkeys(("mean", "correlation"), ("layer", "head")),
            "moments": ("layer", "head", "moment"),
            **dict.fromkeys(("bound", "scale"), ("layer",)),
            **dict.fromkeys(("by_entropy", "norms_by_entropy", "rows_by_entropy"), ("layer", "entropy share")),
            **dict.fromkeys(("plane_softmax", "plane_norm"), ("x1", "x2")),
            **dict.fromkeys(("curve_entropy", "curve_norm"), ("point",)),
        }
        shares = tuple((i + 0.5) / self._bins for i in range(self._bins))
        axes = {**self.axes(mean.shape[1]), "entropy share": shares, "x1": tuple(x.tolist()), "x2": tuple(x.tolist())}
        return Result(values, dims, axes, _POOLING)


def measure(model: nn.Module, batches: Iterable[Any], *, bins: Annotated[int, Range(1, 10_000)] = 20) -> Measurement:
    """Nuclear norm of the softmax Jacobian of every attention row, compared with its entropy and with closed forms.

    Norms are for λ = 1, so that layers and models of different width are comparable. Multiply by `scale` for the
    gradient with respect to q·k.

    Args:
        model: a model with attention maps; it runs in evaluation mode.
        batches: yields (images, targets) or images.
        bins: number of bins of entropy divided by its bound.

    Returns:
        `mean` (layer, head), the mean norm over rows; `correlation` (layer, head) of norm and entropy over rows;
        `bound` (layer), 1 − 1/M; `scale` (layer), λ, NaN if unknown; `by_entropy` (layer, entropy share), the mean norm
        of the rows in each entropy bin, NaN for empty bins; the sums over rows that these are computed from,
        `moments` (layer, head, moment): n, Σx, Σy, Σx², Σy², Σxy of norm x and entropy y, and `norms_by_entropy`,
        `rows_by_entropy` (layer, entropy share); `plane_softmax` and `plane_norm` (x1, x2), Fig. 5; `curve_entropy`
        and `curve_norm` (point), from one key to uniform over the largest M.
    """
    return observe(model, batches, [Accumulator(bins)])[0]
