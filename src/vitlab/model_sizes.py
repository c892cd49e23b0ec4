"""Parameters and multiply-accumulates of the papers' models, counted and as published.

Models are counted on the meta device, for one image of the model's input size, without initialised weights. The
papers' "FLOPs" are multiply-accumulates, half of what a flop counter returns. A flop counter counts matrix products
and convolutions only; elementwise parts are counted separately, as CB does in Tables S16 and S17.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitlab import zoo
from vitlab.core import plugins
from vitlab.preprocessing.resolution import input_size

#: Published sizes of timm's models and of models with parts; `exact_params` is our own count. CB: Tables 1, 5, 11,
#: S12, S16, S17 (22.0 for ViT-S is truncated, not rounded). TAPADL: Tables 1 and 2. Empty: printed in neither.
PRINTED: dict[str, dict[str, float]] = {
    "timm/deit_tiny_patch16_224": {"params_m": 5.7, "macs_g": 1.3, "exact_params": 5_717_416},
    "timm/deit_small_patch16_224": {"params_m": 22.0, "macs_g": 4.6, "exact_params": 22_050_664},
    "timm/deit_base_patch16_224": {"params_m": 86.6, "macs_g": 17.6, "exact_params": 86_567_656},
    "timm/deit_tiny_distilled_patch16_224": {"params_m": 5.9, "macs_g": 1.3, "exact_params": 5_910_800},
    "timm/deit_small_distilled_patch16_224": {"params_m": 22.4, "macs_g": 4.6, "exact_params": 22_436_432},
    "timm/deit_base_distilled_patch16_224": {"params_m": 87.3, "macs_g": 17.6, "exact_params": 87_338_192},
    "timm/pit_b_224": {"params_m": 73.8, "macs_g": 12.4},
    "timm/mixer_s16_224": {"params_m": 18.5, "macs_g": 3.8},
    "timm/pvt_v2_b1": {},
    "timm/swin_tiny_patch4_window7_224": {},
    "timm/swin_base_patch4_window7_224": {"params_m": 87.8, "macs_g": 15.4},
    "timm/convnext_base": {"params_m": 88.6, "macs_g": 15.4},
    "timm/convit_base": {"params_m": 86.5, "macs_g": 17.7},
    "timm/deit_small_patch16_224 | ContextBroadcast": {"params_m": 22.0, "macs_g": 4.6, "added_macs_m": 0.9},
    "timm/deit_small_patch16_224 | ContextBroadcast(at='mlp.in')": {"macs_g": 4.6, "added_macs_m": 0.9},
    "timm/deit_small_patch16_224 | ContextBroadcast(at='mlp.mid')": {"macs_g": 4.6, "added_macs_m": 3.6},
    "timm/deit_small_patch16_224 | ContextBroadcast(at='attn.out') | ContextBroadcast": {
        "macs_g": 4.6,
        "added_macs_m": 1.8,
    },
    "timm/deit_small_patch16_224 | GatedContextBroadcast": {"added_macs_m": 0.9},
    "timm/deit_small_patch16_224 | HybridContextBroadcast": {"added_macs_m": 1.8},
    "timm/deit_small_patch16_224 | HybridContextBroadcast(at='mlp.mid')": {"added_macs_m": 7.3},
    "timm/deit_small_patch16_224 | ScaledContextBroadcast": {"params_m": 22.0, "macs_g": 4.6},
    "timm/deit_small_patch16_224 | UniformHead(form='A')": {"params_m": 21},
    "timm/deit_small_patch16_224 | UniformHead(form='B')": {"params_m": 22},
    "timm/deit_small_patch16_224 | UniformHead(form='C')": {"params_m": 29},
    "vitlab/fan_base_hybrid | AveragePooling(kernel=3)": {"params_m": 50.4, "macs_g": 11.7},
    "vitlab/fan_base_hybrid | AveragePooling(kernel=5)": {"params_m": 50.4, "macs_g": 11.7},
    "vitlab/fan_base_hybrid | ConvolutionPooling(kernel=3)": {
        "params_m": 79.4,
        "macs_g": 17.3,
        "exact_params": 79_376_424,
    },
    "vitlab/fan_base_hybrid | ConvolutionPooling(kernel=5)": {
        "params_m": 130.7,
        "macs_g": 27.4,
        "exact_params": 130_756_648,
    },
    "vitlab/fan_base_hybrid | MultiKernelPooling": {"params_m": 50.7, "macs_g": 11.8},
    "vitlab/fan_base_hybrid | TokenAwarePooling": {"params_m": 50.7, "macs_g": 11.8, "exact_params": 50_735_528},
    "vitlab/fan_base_hybrid | TokenAwarePooling(branches=5)": {"exact_params": 50_801_368},
    "vitlab/rvt_base_plus | TokenAwarePooling": {"params_m": 92.1, "macs_g": 17.9, "exact_params": 92_089_288},
    "vitlab/rvt_base_plus_released(conv_mlp=True)": {"exact_params": 89_063_272},
    "vitlab/rvt_base_plus_released(conv_mlp=True) | TokenAwarePooling": {"exact_params": 89_396_872},
    "vitlab/alternet50_cifar_released(head_dim=32)": {"exact_params": 26_321_098},
}

#: Elementwise multiply-adds per token and channel, as CB counts them: the mean over the tokens is not counted.
_PER_ELEMENT = {
    "ContextBroadcast": 1,
    "ScaledContextBroadcast": 1,
    "GatedContextBroadcast": 1,
    "HybridContextBroadcast": 2,
    "SqueezeExcite": 1,
}


@dataclass(frozen=True)
class Published:
    """The published size of a model: as printed (in millions, 10⁹ and millions), or computed exactly."""

    params_m: float | None = None
    macs_g: float | None = None
    exact_params: int | None = None
    added_macs_m: float | None = None


@dataclass(frozen=True)
class Size:
    """A model's parameters, multiply-accumulates, those of its elementwise parts, and its published size."""

    expression: str
    parameters: int
    macs: int
    added_macs: int
    published: Published

    @property
    def marks(self) -> dict[str, str]:
        """Comparison of each published figure with the count: `=`, `≈`, `≠`, or empty where none is published."""
        known = self.published
        exact = "" if known.exact_params is None else "=" if known.exact_params == self.parameters else "≠"
        return {
            "exact_params": exact,
            "params_m": agreement(self.parameters / 1e6, known.params_m, within=0.01),
            "macs_g": agreement(self.macs / 1e9, known.macs_g, within=0.02),
            "added_macs_m": agreement(self.added_macs / 1e6, known.added_macs_m, within=0.0),
        }


def agreement(counted: float, printed: float | None, within: float) -> str:
    """`=` where the count, rounded to the printed digits, equals the printed number; `≈` within a tolerance; else `≠`.

    >>> agreement(17.56, 17.6, within=0.02), agreement(11.77, 11.7, within=0.02), agreement(12.0, 11.7, within=0.02)
    ('=', '≈', '≠')
    """
    if printed is None:
        return ""
    if Decimal(counted).quantize(Decimal(str(printed))) == Decimal(str(printed)):
        return "="
    return "≈" if abs(counted / printed - 1) <= within else "≠"


def published() -> dict[str, Published]:
    """The published sizes by expression: vitlab's models, then timm's and those with parts."""
    ours = {f"vitlab/{name}": entry for name, entry in plugins.published_sizes().items()}
    return {expression: Published(**entry) for expression, entry in {**ours, **PRINTED}.items()}


def sizes() -> Iterator[Size]:
    """Yield the size of each of these models; all take half a minute."""
    for expression, known in published().items():
        yield size_of(expression, known)


def size_of(expression: str, known: Published | None = None, size: tuple[int, int] | None = None) -> Size:
    """Count a model of timm or vitlab on the meta device.

    Args:
        expression: a model expression without weights.
        known: its published size.
        size: height and width of the image; by default the input size of the model.

    >>> size_of("timm/deit_tiny_patch16_224").parameters
    5717416
    """
    with torch.device("meta"):
        model = zoo.load(expression).eval().requires_grad_(False)
    counter = FlopCounterMode(display=False)
    with counter:
        model(torch.empty(1, 3, *(size or input_size(model)), device="meta"))
    return Size(
        expression,
        sum(parameter.numel() for parameter in model.parameters()),
        counter.get_total_flops() // 2,
        added_operations(model),
        known or Published(),
    )


def added_operations(model: nn.Module) -> int:
    """Elementwise multiply-adds of the Context Broadcasting and SE parts in a model, for one image: Σ_blocks N · D · c.

    c is 1 for CB, CB_S, CB_gate and the gate of SE, and 2 for CB_hybrid (CB, Tables S16 and S17). At Mid D is the width
    of the hidden layer, four times that at End.
    """
    total = 0
    for part in model.modules():
        seam: Any = getattr(part, "vitlab_seam", None)  # set by surgery: the seam of the part
        if seam is not None:
            total += seam.layout.tokens * seam.dim * _PER_ELEMENT.get(type(part).__name__, 0)
    return total
