"""TAPADL Table 5: TAP & ADL in DeiT-B, Swin-B, RVT-B and FAN-B-Hybrid.

Code was released for RVT and FAN only: how TAP and ADL treat the class token of DeiT and the windows of Swin is our
choice (the class token is not pooled and is in the loss; TAP on the whole map, ADL within windows). At `small`, ViT-Ti
and Swin-Ti on CIFAR-100 replace DeiT-B and Swin-B; RVT-B and FAN-B-Hybrid are not run. The weights of timm are used
for DeiT-B, whose authors report 81.8, and Swin-B.
"""

from __future__ import annotations

from collections.abc import Iterator

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._checks import Check, better, evaluated, gain
from vitlab.experiments.robust_token_attention._numbers import ACCURACY, CORRUPTIONS, MCE, ON_CIFAR100, TOP1, Number
from vitlab.experiments.robust_token_attention._variants import PLAIN, TAP_ADL, jobs

TITLE = "TAPADL Table 5: TAP & ADL in four architectures"

DIFFERENCES = ON_CIFAR100

_BASES = {"deit": "DeiT-B", "swin": "Swin-B", "rvt": "RVT-B", "fan": "FAN-B-Hybrid"}
#: Base and variant -> top-1 and mCE.
_ROWS: dict[str, tuple[float, float]] = {
    "deit_plain": (82.0, 48.5),
    "deit_tap_adl": (82.4, 46.6),
    "swin_plain": (83.4, 54.4),
    "swin_tap_adl": (84.0, 51.9),
    "rvt_plain": (82.6, 46.8),
    "rvt_tap_adl": (83.1, 44.7),
    "fan_plain": (83.9, 46.1),
    "fan_tap_adl": (84.3, 43.7),
}
_NUMBERS: dict[str, tuple[int, Number, str]] = {
    "top1": (0, TOP1, "top-1 accuracy on ImageNet"),
    "mce": (1, MCE, "mCE on ImageNet-C"),
}
#: Base -> model at `small`; empty for ViT-Ti.
_SMALL = {"deit": "", "swin": "vitlab/swin_tiny_cifar(num_classes=100, drop_path_rate=0.1)"}
#: Rows whose weights are published; those of RVT-B and FAN-B-Hybrid are in Table 2.
_PUBLISHED = ("deit_plain", "swin_plain")


def _title(arm: str) -> str:
    base, _, variant = arm.partition("_")
    return _BASES[base] + (" + TAP & ADL" if variant == "tap_adl" else "")


PAPER = [
    Published(_title(arm), column, value)
    for arm, row in _ROWS.items()
    for column, value in zip(("ImageNet", "ImageNet-C (mCE)"), row, strict=True)
]


def _improvements() -> Iterator[Check]:
    for base, title in _BASES.items():
        for name, (column, number, what) in _NUMBERS.items():
            first, second = f"{base}_plain", f"{base}_tap_adl"
            sentence = f"TAP & ADL {'lowers' if number.lower else 'raises'} the {what} of {title}"
            paper = gain(_ROWS, column, first, second, lower=number.lower)
            yield better(Claim(f"{name}_{second}", sentence, paper, source="Table 5"), number, first, second)


def _published_weights() -> Iterator[Check]:
    for arm in _PUBLISHED:
        for name, (column, number, what) in _NUMBERS.items():
            sentence = f"the {what} of the published weights of {_title(arm)} is {_ROWS[arm][column]}"
            yield evaluated(f"evaluated_{name}_{arm}", sentence, number, arm, _ROWS[arm][column], "Table 5")


_CHECKS = [*_improvements(), *_published_weights()]
CLAIMS = [each.claim for each in _CHECKS]


def plan(scale: Scale) -> list[Job]:
    """Each architecture with and without TAP & ADL."""
    bases = {"smoke": ("deit",), "small": tuple(_SMALL)}.get(scale, tuple(_BASES))
    return [
        job
        for base in bases
        for job in jobs(
            scale,
            (PLAIN, TAP_ADL),
            (ACCURACY, CORRUPTIONS),
            base=base,
            prefix=f"{base}_",
            small_model=_SMALL.get(base, ""),
        )
    ]


def check(results: Results) -> list[Verdict]:
    """Trained networks are paired by seed; published weights are compared with the printed digits."""
    return [each.judge(results) for each in _CHECKS]
