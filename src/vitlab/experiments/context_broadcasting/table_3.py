"""CB Table 3: squeeze-and-excitation (SE) and CB in ViT-S: extra resources (a) and top-1 accuracy (b).

"Implementation difficulty" (Easy, 1 line) is not measured. Position and ratio of SE are not published.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import (
    claims_of,
    difference,
    gain,
    holds,
    raises,
    table,
    verdicts_of,
)
from vitlab.experiments.context_broadcasting._shared import REPEATED, Network, sizes

TITLE = "CB Table 3: squeeze-and-excitation and CB"

DIFFERENCES = REPEATED

_VIT_S = "timm/deit_small_patch16_224"

#: Arm -> row, part of the model expression, top-1.
_ROWS = {
    "plain": ("ViT-S", "", 79.9),
    "se": ("+ SE", " | SqueezeExcite", 80.3),
    "cb": ("+ CB", " | ContextBroadcast(blocks='upper')", 80.8),
}

PAPER = table(("Acc@1 [%]",), {row: (top1,) for row, _, top1 in _ROWS.values()})


def _operations(results: Results, arm: str) -> float | None:
    """Additional multiply-accumulates of a module, those of elementwise operations included."""
    products = difference(results, "plain", arm, "macs")
    elementwise = difference(results, "plain", arm, "added_macs")
    return None if products is None or elementwise is None else products + elementwise


def _parameters(results: Results) -> bool | None:
    se, cb = (difference(results, "plain", arm, "parameters") for arm in ("se", "cb"))
    return None if se is None or cb is None else se > 0 and cb == 0


def _cheaper(results: Results) -> bool | None:
    se, cb = (_operations(results, arm) for arm in ("se", "cb"))
    return None if se is None or cb is None else cb < se


_CHECKS = [
    holds(
        Claim("parameters", "SE has additional parameters and CB has none", deterministic=True, source="Table 3a"),
        _parameters,
    ),
    holds(
        Claim(
            "computation",
            "CB adds fewer multiply-accumulates to ViT-S than SE",
            deterministic=True,
            source="Table 3a: low and high",
        ),
        _cheaper,
    ),
    raises("Acc@1", ("plain", 79.9), ("se", 80.3), "SE", "Table 3b", "ViT-S"),
    raises("Acc@1", ("plain", 79.9), ("cb", 80.8), "CB", "Table 3b", "ViT-S"),
    gain(
        Claim("cb over se", "CB gives a higher top-1 accuracy than SE", paper=0.5, source="Table 3b"),
        "se",
        "cb",
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """The counts of ViT-S, and training."""
    jobs = [sizes(arm, f"{_VIT_S}{part}") for arm, (_, part, _) in _ROWS.items()]
    for arm in _ROWS:
        jobs += Network("" if arm == "plain" else arm).jobs(scale, arm)
    return jobs


def check(results: Results) -> list[Verdict]:
    """Counts are exact; accuracies are paired by seed."""
    return verdicts_of(_CHECKS, results)
