"""Results select and pair measurements; verdicts on deterministic claims; jobs are checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Claim, Job, Results, exact, judged, not_run, paired, values_of
from vitlab.core.measurement import Measurement

JOB = Job("plain", "calibration(bins=10)", recipe="quick")
EXACT = Claim("count", "ViT-S has 22.1 M parameters", paper=22.1, deterministic=True)
GAIN = Claim("gain", "the part raises accuracy", paper=1.0)


def found(value: float, part: int | None = None) -> Measurement:
    about = {"part": [part, 2]} if part else {}
    return Measurement("calibration", "m", {"ece": np.array(value)}, {"ece": ()}, provenance=about)


def test_entries_are_selected_by_arm_kind_and_condition() -> None:
    other = replace(JOB, arm="cb", data="scenes")
    results = Results([(JOB, found(1.0)), (other, found(2.0))])
    assert results.by_seed("plain", "calibration", "ece") == {0: 1.0}
    assert results.by_seed("cb", "calibration", "ece", lambda job: job.data is None) == {}
    assert results.by_seed("plain", "lesion", "ece") == {}


def test_parts_are_averaged_by_seed_and_paired_by_part() -> None:
    entries = [(replace(JOB, seed=seed), found(10.0 * seed + part, part)) for seed in (0, 1) for part in (1, 2)]
    results = Results(entries)
    assert results.by_seed("plain", "calibration", "ece") == {0: 1.5, 1: 11.5}
    by_part = results.by_part("plain", "calibration", "ece")
    assert by_part == {(0, 1): 1.0, (0, 2): 2.0, (1, 1): 11.0, (1, 2): 12.0}
    assert paired(by_part, {(1, 2): 15.0, (0, 1): 0.0, (2, 1): 7.0}) == [-1.0, 3.0]


def test_the_last_epoch_of_a_curve_is_taken() -> None:
    curve = Measurement("training", "m", {"top1": np.array([1.0, 5.0])}, {"top1": ("epoch",)}, {"epoch": (1, 2)})
    job = replace(JOB, procedure="training")
    assert Results([(job, curve)]).by_seed("plain", "training", "top1") == {0: 5.0}


def test_arrays_need_a_function() -> None:
    layers = Measurement("calibration", "m", {"ece": np.arange(3.0)}, {"ece": ("layer",)})
    results = Results([(JOB, layers)])
    with pytest.raises(VitlabError, match="give a function"):
        results.by_seed("plain", "calibration", "ece")
    with pytest.raises(VitlabError, match="no value 'nll'"):
        results.by_seed("plain", "calibration", "nll")
    assert results.by_seed("plain", "calibration", lambda each: float(each.values["ece"].max())) == {0: 2.0}


@pytest.mark.parametrize(
    ("ours", "outcome"), [(22.05, "holds"), (22.15, "holds"), (22.2, "does not hold"), (None, "not run")]
)
def test_exact_claims_hold_within_the_tolerance(ours: float | None, outcome: str) -> None:
    assert exact(EXACT, ours, tolerance=0.05).outcome == outcome


def test_each_kind_of_claim_has_its_function() -> None:
    with pytest.raises(VitlabError, match="use judged"):
        exact(GAIN, 1.0)
    assert judged(GAIN, []).outcome == not_run(GAIN).outcome == "not run"
    assert judged(GAIN, [1.0, 1.1, 0.9]).outcome == "holds"


def test_labels_select_values() -> None:
    table = Measurement("k", "m", {"v": np.arange(4).reshape(2, 2)}, {"v": ("layer", "head")}, {"layer": ("a", "b")})
    assert values_of(table, "v", layer="b").tolist() == [2, 3] and int(values_of(table, "v", layer="a", head=1)) == 1
    with pytest.raises(VitlabError, match="layer='c'"):
        values_of(table, "v", layer="c")
