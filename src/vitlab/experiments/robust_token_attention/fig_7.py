"""TAPADL Fig. 7: mCE against the number of branches K of TAP, and against the weight λ of ADL.

The figure has curves only; the effect of K = 4 and λ = 1 over the baseline is that of Table 2. Sec. 3.2 says that gains
saturate around K = 5, Sec. 5.2 that K = 4 is best: the claims follow Sec. 5.2. At `small` ViT-Ti on CIFAR-100 replaces
FAN-B-Hybrid, with three seeds for the values that no other table has.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._checks import Check, better
from vitlab.experiments.robust_token_attention._numbers import ACCURACY, CORRUPTIONS, MCE, ON_CIFAR100
from vitlab.experiments.robust_token_attention._variants import ADL, PLAIN, TAP, diversified, jobs, pooled

TITLE = "TAPADL Fig. 7: the number of branches of TAP and the weight of ADL"

DIFFERENCES = ON_CIFAR100

#: Values of K and of λ with their arms: K = 1 is the baseline, K = 4 is `tap`; λ = 1 is `adl`.
BRANCHES = {1: "plain", 2: "branches_2", 3: "branches_3", 4: "tap", 5: "branches_5"}
WEIGHTS = {0.001: "weight_0.001", 0.01: "weight_0.01", 0.1: "weight_0.1", 1: "adl", 10: "weight_10"}
_OTHERS = (
    *(
        pooled(arm, f"TokenAwarePooling(branches={branches}, blocks='all')", branches=branches)
        for branches, arm in BRANCHES.items()
        if arm.startswith("branches")
    ),
    *(diversified(arm, float(weight)) for weight, arm in WEIGHTS.items() if arm != "adl"),
)

PAPER = [
    *(Published(f"K = {branches}", "ImageNet-C (mCE)", None) for branches in BRANCHES),
    *(Published(f"λ = {weight}", "ImageNet-C (mCE)", None) for weight in WEIGHTS),
]


def _lower(arm: str, title: str, against: str, other: str, paper: float | None = None) -> Check:
    name = f"mce_{arm}" if against == "plain" else f"mce_{arm}_against_{against}"
    return better(
        Claim(name, f"{title} has a lower mCE than {other}", paper, source="Fig. 7, Sec. 5.2"), MCE, against, arm
    )


_CHECKS = [
    *(
        _lower(arm, f"TAP with K = {branches}", "plain", "the baseline", 1.2 if arm == "tap" else None)
        for branches, arm in BRANCHES.items()
        if arm != "plain"
    ),
    *(
        _lower("tap", "TAP with K = 4", arm, f"with K = {branches}")
        for branches, arm in BRANCHES.items()
        if arm.startswith("branches")
    ),
    _lower("adl", "ADL with λ = 1", "plain", "the baseline", 1.7),
    *(_lower("adl", "ADL with λ = 1", arm, f"with λ = {weight}") for weight, arm in WEIGHTS.items() if arm != "adl"),
]
CLAIMS = [each.claim for each in _CHECKS]


def plan(scale: Scale) -> list[Job]:
    """All values of K and λ; none of these networks was released."""
    if scale == "released":
        return []
    measured = (ACCURACY, CORRUPTIONS)
    return jobs(scale, (PLAIN, TAP, ADL), measured) + jobs(scale, _OTHERS, measured, seeds=3)


def check(results: Results) -> list[Verdict]:
    """Networks are paired by seed."""
    return [each.judge(results) for each in _CHECKS]
