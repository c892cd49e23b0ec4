"""CB Table S15: ViT-S on CIFAR-100 from scratch, with and without CB (supplement: Table S4).

Resolution, patches and epochs are not published. `full` has DeiT's settings for 300 epochs, `small` ours for 100. At
`small` ViT-Ti is trained too, whose runs other tables share; the paper has no such row.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import claims_of, gain, raises, table, verdicts_of
from vitlab.experiments.context_broadcasting._shared import CIFAR100, Network, runs

TITLE = "CB Table S15: ViT-S on CIFAR-100"

PAPER = table(("Accuracy",), {"ViT-S": (74.73,), "+ CB": (75.43,)})

_TINY = Claim(
    "tiny cb: Acc@1",
    "CB raises Acc@1 of ViT-Ti on CIFAR-100",
    paper=0.7,
    source="not in the paper; the number is that of ViT-S in Table S15",
)
_CHECKS = [
    raises("Acc@1", ("plain", 74.73), ("cb", 75.43), "CB", "Table S15", "ViT-S on CIFAR-100"),
    gain(_TINY, "tiny plain", "tiny cb"),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Training with and without CB."""
    jobs: list[Job] = []
    for arm, part in (("plain", ""), ("cb", "cb")):
        if scale == "full":
            jobs += runs(scale, arm, f"context_broadcasting_cifar100(part={part!r})", **CIFAR100, gpu_minutes=20.0)
        else:
            jobs += Network(part, alone=False).jobs(scale, arm)
        if scale == "small":
            jobs += Network(part, "tiny").jobs(scale, f"tiny {arm}")
    return jobs


def check(results: Results) -> list[Verdict]:
    """Paired by seed."""
    return verdicts_of(_CHECKS, results)
