"""CB Table 9: mIoU under conditions, and the gap to clean images."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.synthetic import entry, layered
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_9

ROWS = {
    "Shot Noise": "shot_noise 255",
    "Gaussian Noise (sigma=5.0)": "gaussian_noise 5",
    "Gaussian Noise (sigma=10.0)": "gaussian_noise 10",
    "Gaussian Blur (sigma=1.0)": "gaussian_blur 1",
    "Gaussian Blur (sigma=2.0)": "gaussian_blur 2",
}
CONDITIONS = tuple(ROWS.values())


def example(claim: Claim, effects: Sequence[float]) -> Results:
    row, _, kind = claim.name.partition(": ")
    entries = []
    for seed, effect in enumerate(effects):
        for arm, gain in (("plain", 0.0), ("cb", effect)):
            clean = 40.0 + (gain if row == "Nothing" else 3.0 if kind == "gap" and arm == "cb" else 0.0)
            raised = clean if kind == "gap" else 30.0
            miou = [raised + (gain if ROWS.get(row) == condition else 0.0) for condition in CONDITIONS]
            found = layered(
                "segmentation_corruptions",
                {"condition": CONDITIONS},
                miou=(("condition",), [each / 100 for each in miou]),
                clean_miou=((), clean / 100),
            )
            entries.append(entry(arm, found, seed))
    return Results(entries)


def test_conditions_are_those_of_the_stress_test() -> None:
    from vitlab.stress_tests.shared.segmentation_suites import context_broadcasting

    assert [condition.name for condition in context_broadcasting()] == list(CONDITIONS)


def test_the_gap_of_the_text() -> None:
    """Sec. 4.6: the gap rises from 0.6 up to 0.97."""
    effects = {claim.name: claim.paper for claim in table_9.CLAIMS}
    assert effects["Gaussian Blur (sigma=1.0): mIoU"] == 0.97
    assert effects["Gaussian Blur (sigma=1.0): gap"] == 0.37
