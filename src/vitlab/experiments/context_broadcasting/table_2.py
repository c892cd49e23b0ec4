"""CB Table 2: CB in all layers (CB†) and in the upper layers (CB), for ViT-Ti, ViT-S and ViT-B.

How many layers are "upper" is not published: the upper half is our choice. The paper trains ViT-Ti and ViT-S with
repeated augmentation without CB, and without it with CB. The arm `fair` has neither.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import Check, claims_of, gain, raises, table, verdicts_of
from vitlab.experiments.context_broadcasting._shared import REPEATED, SIZES, Network

TITLE = "CB Table 2: CB in all and in the upper layers"

DIFFERENCES = REPEATED

#: Size -> top-1 without CB, with CB in all layers, and in the upper layers.
_ROWS = {"tiny": (72.2, 73.2, 73.4), "small": (79.9, 80.5, 80.8), "base": (81.8, 82.0, 82.1)}

PAPER = table(("No module", "CB†", "CB"), {SIZES[size]: values for size, values in _ROWS.items()})


def _checks_of(size: str) -> list[Check]:
    name, (plain, all_layers, upper) = SIZES[size], _ROWS[size]
    base = (f"{size} plain", plain)
    better = Claim(
        f"{size}: upper",
        f"CB in the upper layers of {name} gives a higher top-1 accuracy than CB in all layers",
        paper=round(upper - all_layers, 1),
        source="Table 2",
    )
    fair = Claim(
        f"{size}: fair",
        f"CB raises the top-1 accuracy of {name} if both are trained without repeated augmentation",
        paper=round(upper - plain, 1),
        source="not in the paper; the number is that of Table 2",
    )
    return [
        raises("Acc@1", base, (f"{size} all", all_layers), "CB in all layers", "Table 2", name),
        raises("Acc@1", base, (f"{size} upper", upper), "CB in the upper layers", "Table 2", name),
        gain(better, f"{size} all", f"{size} upper"),
        *([] if size == "base" else [gain(fair, f"{size} fair", f"{size} upper")]),
    ]


_CHECKS = [each for size in SIZES for each in _checks_of(size)]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Training of each network; ViT-B at `full` only."""
    jobs: list[Job] = []
    for size in SIZES:
        jobs += Network("", size, alone=False).jobs(scale, f"{size} plain")
        jobs += Network("cb", size, blocks="all", alone=False).jobs(scale, f"{size} all")
        jobs += Network("cb", size, alone=False).jobs(scale, f"{size} upper")
        jobs += Network("", size, repeated=False, alone=False).jobs(scale, f"{size} fair") if size != "base" else []
    return jobs


def check(results: Results) -> list[Verdict]:
    """Paired by seed."""
    return verdicts_of(_CHECKS, results)
