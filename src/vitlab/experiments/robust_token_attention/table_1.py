"""TAPADL Table 1: local aggregation before attention in FAN-B-Hybrid.

The convolutions are dense, one per block. The kernels of TAP (multi-kernel) are not published; 1, 3, 5 and 7 are our
choice. At `small` ViT-Ti on CIFAR-100 replaces FAN-B-Hybrid.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._checks import Check, better, counted, gain
from vitlab.experiments.robust_token_attention._numbers import ACCURACY, CORRUPTIONS, MCE, ON_CIFAR100, TOP1
from vitlab.experiments.robust_token_attention._variants import PLAIN, TAP, jobs, pooled

TITLE = "TAPADL Table 1: TAP and other local aggregation in FAN-B-Hybrid"

DIFFERENCES = ON_CIFAR100

_BASE = "FAN-B-Hybrid"
#: Variant -> its title, and FLOPs (10⁹), parameters (millions), top-1 and mCE as printed.
_ROWS: dict[str, tuple[float, float, float, float]] = {
    "plain": (11.7, 50.4, 83.9, 46.1),
    "average_3": (11.7, 50.4, 83.6, 45.6),
    "average_5": (11.7, 50.4, 82.7, 45.5),
    "convolution_3": (17.3, 79.4, 84.0, 45.9),
    "convolution_5": (27.4, 130.7, 84.4, 45.8),
    "multi_kernel": (11.8, 50.7, 84.1, 45.5),
    "tap": (11.8, 50.7, 84.3, 44.9),
}
_TITLES = {
    "plain": _BASE,
    "average_3": "AvgPool3x3",
    "average_5": "AvgPool5x5",
    "convolution_3": "Conv3x3",
    "convolution_5": "Conv5x5",
    "multi_kernel": "TAP (multi-kernel)",
    "tap": "TAP",
}
_VARIANTS = (
    PLAIN,
    pooled("average_3", "AveragePooling(kernel=3, blocks='all')", pooling="average_3"),
    pooled("average_5", "AveragePooling(kernel=5, blocks='all')", pooling="average_5"),
    pooled("convolution_3", "ConvolutionPooling(kernel=3, blocks='all')", pooling="convolution_3"),
    pooled("convolution_5", "ConvolutionPooling(kernel=5, blocks='all')", pooling="convolution_5"),
    pooled("multi_kernel", "MultiKernelPooling(blocks='all')", pooling="multi_kernel"),
    TAP,
)
_COLUMNS = ("#FLOPs (G)", "#Params (M)", "ImageNet", "ImageNet-C")

PAPER = [
    Published(_BASE if arm == "plain" else f"+ {_TITLES[arm]}", column, value)
    for arm, row in _ROWS.items()
    for column, value in zip(_COLUMNS, row, strict=True)
]


def _size(arm: str) -> list[Check]:
    title = _BASE if arm == "plain" else f"{_BASE} with {_TITLES[arm]}"
    flops, parameters, *_ = _ROWS[arm]
    return counted(arm, title, parameters, flops, "Table 1")


def _robust(arm: str, against: str = "plain") -> Check:
    name, other = (f"mce_{arm}", _BASE) if against == "plain" else (f"mce_{arm}_against_{against}", _TITLES[against])
    sentence = f"{_TITLES[arm]} has a lower mCE than {other}"
    paper = gain(_ROWS, 3, against, arm, lower=True)
    return better(Claim(name, sentence, paper, source="Table 1"), MCE, against, arm)


def _accurate(arm: str) -> Check:
    """Average pooling lowers clean accuracy; the others raise it."""
    paper = gain(_ROWS, 2, "plain", arm, lower=False)
    first, second, verb = ("plain", arm, "raises") if paper > 0 else (arm, "plain", "lowers")
    name = f"top1_{arm}" if paper > 0 else f"top1_plain_against_{arm}"
    claim = Claim(name, f"{_TITLES[arm]} {verb} top-1 accuracy", abs(paper), source="Table 1, Sec. 3.2")
    return better(claim, TOP1, first, second)


_ADDED = [arm for arm in _ROWS if arm != "plain"]
_CHECKS = [
    *(check for arm in _ROWS for check in _size(arm)),
    *(_robust(arm) for arm in _ADDED),
    *(_accurate(arm) for arm in _ADDED),
    *(_robust("tap", arm) for arm in _ADDED if arm != "tap"),
]
CLAIMS = [each.claim for each in _CHECKS]


def plan(scale: Scale) -> list[Job]:
    """The counts at every scale, and the training of all rows."""
    models = {variant.arm: f"vitlab/fan_base_hybrid{variant.parts}" for variant in _VARIANTS}
    sizes = [Job(arm, "sizes", model=model) for arm, model in models.items()]
    # Only the baseline of this table was released: there is nothing to compare it with.
    return sizes if scale == "released" else sizes + jobs(scale, _VARIANTS, (ACCURACY, CORRUPTIONS))


def check(results: Results) -> list[Verdict]:
    """Counts are compared with the printed digits; accuracies and errors are paired by seed."""
    return [each.judge(results) for each in _CHECKS]
