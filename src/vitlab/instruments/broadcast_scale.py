"""Broadcast scale: statistics of the learned weights Λ of CB_S by depth (CB Fig. 8).

    ratio = |λ_0.1| / |λ_0.9|, quantiles of the weights of one layer; mean Λ and mean |Λ|

Shape legend: D channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.modules.context_broadcast import ScaledContextBroadcast

CARD = Card(
    title="Learned weights of scaled context broadcasting, by depth",
    paper="CB Fig. 8",
    cost="no forward",
    inputs="nothing",
    passes="none",
    needs=("ScaledContextBroadcast",),
)


def quantile_ratio(scale: Tensor, signed: bool = False) -> float:
    """|λ_0.1| / |λ_0.9|: near 1 if all channels have similar weights.

    Args:
        scale: (D,)
        signed: use the absolute values of the quantiles of λ. Default: quantiles of |λ|, so that the ratio is at most
            1. The paper's notation allows both.

    Returns:
        The ratio; NaN if the larger quantile is 0, as in an untrained Λ.

    >>> round(quantile_ratio(torch.linspace(-1, 1, 21).abs()), 3), quantile_ratio(torch.full((8,), -0.5))
    (0.111, 1.0)
    """
    low, high = np.abs(np.quantile((scale if signed else scale.abs()).double().cpu().numpy(), [0.1, 0.9]))
    return float(low / high) if high > 0 else float("nan")


def measure(model: nn.Module, batches: Iterable[Any] = ()) -> Measurement:
    """Summaries of Λ for every `ScaledContextBroadcast` of a model, in order of depth.

    Args:
        model: a trained model with CB_S; at initialisation all entries of Λ are equal.
        batches: not used.

    Returns:
        `ratio` (layer), of quantiles of |λ|; `ratio_signed` (layer), of quantiles of λ; `mean` and `mean_absolute`
        (layer), since the paper does not state whether its average is of absolute values. Layers are named after the
        module that contains the part.
    """
    scales = {
        name: part.scale.detach() for name, part in model.named_modules() if isinstance(part, ScaledContextBroadcast)
    }
    if not scales:
        raise VitlabError(
            "broadcast_scale needs a model with CB_S; insert it with retrofit(model, 'ScaledContextBroadcast')"
        )
    for name, scale in scales.items():
        if not torch.isfinite(scale).all():
            raise VitlabError(f"broadcast_scale: the weights of {name} are not finite; check the training run")
    values = {
        "ratio": [quantile_ratio(scale) for scale in scales.values()],
        "ratio_signed": [quantile_ratio(scale, signed=True) for scale in scales.values()],
        "mean": [scale.double().mean().item() for scale in scales.values()],
        "mean_absolute": [scale.double().abs().mean().item() for scale in scales.values()],
    }
    arrays = {name: np.array(value) for name, value in values.items()}
    layers = tuple(name.rpartition(".")[0] or name for name in scales)
    about = provenance(images=0)
    return Measurement(
        "broadcast_scale", type(model).__name__, arrays, dict.fromkeys(values, ("layer",)), {"layer": layers}, {}, about
    )
