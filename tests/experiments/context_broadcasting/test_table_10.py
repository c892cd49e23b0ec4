"""CB Table 10: tokens of CB_S in ViLT."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.synthetic import pairs
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_10


def example(claim: Claim, effects: Sequence[float]) -> Results:
    return pairs("training", "accuracy", "plain", claim.name, effects, base=71.0)


def test_effects_of_the_text() -> None:
    """Sec. 4.7: 0.16, 0.18 and 0.14."""
    assert [claim.paper for claim in table_10.CLAIMS] == [0.16, 0.18, 0.14]
