"""CB Table S15: ViT-S on CIFAR-100."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_s15


def example(claim: Claim, effects: Sequence[float]) -> Results:
    prefix = "tiny " if claim.name.startswith("tiny") else ""
    return gains("Acc@1", f"{prefix}plain", f"{prefix}cb", effects)


def test_the_effect_of_the_table() -> None:
    assert [claim.paper for claim in table_s15.CLAIMS] == [0.7, 0.7]


def test_vit_tiny_is_trained_at_small_only() -> None:
    assert {job.arm for job in table_s15.plan("small")} == {"plain", "cb", "tiny plain", "tiny cb"}
    assert {job.arm for job in table_s15.plan("full")} == {"plain", "cb"}
