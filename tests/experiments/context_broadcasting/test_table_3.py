"""CB Table 3: resources and accuracy of SE and CB."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import counts, gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_3


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.name == "parameters":
        return Results([counts("plain", 10), counts("se", 12), counts("cb", 10 if effects[0] else 11)])
    if claim.name == "computation":  # SE: 3 products and 5 elementwise operations
        return Results(
            [
                counts("plain", macs=10),
                counts("se", macs=13, added_macs=5),
                counts("cb", macs=10, added_macs=6 if effects[0] else 9),
            ]
        )
    if claim.name == "cb over se":
        return gains("Acc@1", "se", "cb", effects)
    return gains("Acc@1", "plain", claim.name.partition(":")[0], effects)


def test_se_has_parameters_and_costs_more() -> None:
    """Two linear layers of d · d/4 per block, and a product per token and channel; CB in six blocks."""
    from vitlab.model_sizes import size_of

    sizes = {job.arm: size_of(job.model) for job in table_3.plan("released")}
    d, n = 384, 197
    assert sizes["se"].macs - sizes["plain"].macs == 12 * 2 * d * d // 4
    assert (sizes["se"].added_macs, sizes["cb"].added_macs) == (12 * n * d, 6 * n * d)
    entries = [counts(arm, size.parameters, size.macs, size.added_macs) for arm, size in sizes.items()]
    assert [verdict.outcome for verdict in table_3.check(Results(entries))[:2]] == ["holds", "holds"]
