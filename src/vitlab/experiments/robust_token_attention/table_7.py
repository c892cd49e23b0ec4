"""TAPADL Table 7: the threshold τ of ADL in FAN-B-Hybrid, without TAP.

The table labels τ = 0 "Baseline", although Eq. 1 at τ = 0 is ADL without threshold. Both are run: the baseline without
ADL, which the gains refer to, and ADL with τ = 0. At `small` ViT-Ti on CIFAR-100 replaces FAN-B-Hybrid, with three
seeds.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._checks import Check, better, gain
from vitlab.experiments.robust_token_attention._numbers import ACCURACY, CORRUPTIONS, MCE, ON_CIFAR100, TOP1
from vitlab.experiments.robust_token_attention._variants import ADL, PLAIN, diversified, jobs

TITLE = "TAPADL Table 7: the threshold of ADL"

DIFFERENCES = ON_CIFAR100

#: Variant -> top-1 and mCE. `adl` has τ = 2.
_ROWS: dict[str, tuple[float, float]] = {
    "plain": (83.9, 46.1),
    "tau_1": (83.9, 45.1),
    "adl": (84.0, 44.4),
    "tau_3": (84.0, 45.5),
    "tau_5": (83.9, 45.8),
}
_TAU = {"plain": "0 (Baseline)", "tau_0": "0", "tau_1": "1", "adl": "2", "tau_3": "3", "tau_5": "5"}
_OTHERS = tuple(diversified(f"tau_{tau}", tau=float(tau)) for tau in (0, 1, 3, 5))

PAPER = [
    Published(f"τ = {_TAU[arm]}", column, value)
    for arm, row in _ROWS.items()
    for column, value in zip(("ImageNet", "ImageNet-C (mCE)"), row, strict=True)
]


def _robust(arm: str) -> Check:
    paper = gain(_ROWS, 1, "plain", arm, lower=True)
    claim = Claim(f"mce_{arm}", f"ADL with τ = {_TAU[arm]} lowers mCE", paper, source="Table 7")
    return better(claim, MCE, "plain", arm)


def _best(other: str) -> Check:
    """τ = 2 against another τ; the printed number of τ = 0 is that of the baseline."""
    paper = gain(_ROWS, 1, "plain" if other == "tau_0" else other, "adl", lower=True)
    sentence = f"ADL with τ = 2 has a lower mCE than with τ = {_TAU[other]}"
    return better(Claim(f"mce_adl_against_{other}", sentence, paper, source="Table 7, Sec. 5.4"), MCE, other, "adl")


_ACCURATE = Claim(
    "top1_adl",
    "ADL with τ = 2 raises top-1 accuracy",
    paper=gain(_ROWS, 0, "plain", "adl", lower=False),
    source="Table 7, Sec. 5.4: marginal improvements",
)
_CHECKS = [
    *(_robust(arm) for arm in _ROWS if arm != "plain"),
    *(_best(variant.arm) for variant in _OTHERS),
    better(_ACCURATE, TOP1, "plain", "adl"),
]
CLAIMS = [each.claim for each in _CHECKS]


def plan(scale: Scale) -> list[Job]:
    """All thresholds; none but τ = 2 with TAP was released."""
    if scale == "released":
        return []
    measured = (ACCURACY, CORRUPTIONS)
    return jobs(scale, (PLAIN, ADL), measured) + jobs(scale, _OTHERS, measured, seeds=3)


def check(results: Results) -> list[Verdict]:
    """Networks are paired by seed."""
    return [each.judge(results) for each in _CHECKS]
