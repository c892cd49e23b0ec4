"""CB Table 7: six averages of precision."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.synthetic import entry, measured
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_7


def example(claim: Claim, effects: Sequence[float]) -> Results:
    kind = {"b": "box", "m": "mask"}[claim.name[-1]]
    metric = f"{kind}_{claim.name.partition('^')[0].lower()}"
    names = [f"{kind}_{name}" for kind in ("box", "mask") for name in ("ap", "ap50", "ap75")]
    return Results(
        [
            entry(arm, measured("average_precision", **{**dict.fromkeys(names, 0.3), metric: 0.3 + gain / 100}), seed)
            for seed, effect in enumerate(effects)
            for arm, gain in (("plain", 0.0), ("cb", effect))
        ]
    )


def test_effects_of_the_text() -> None:
    """Sec. 4.4: 0.3, 0.5 and 0.3 for boxes; 0.3, 0.1 and 0.5 for masks."""
    assert [claim.paper for claim in table_7.CLAIMS] == [0.3, 0.5, 0.3, 0.3, 0.1, 0.5]
