"""Records of experiments: their numbers give back the verdicts, also those of the committed records."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.synthetic import effects_of, layered
from experiments.test_contract import NAMES, example_of
from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Job, Results, not_run
from vitlab.experiments.catalogue import experiment, select
from vitlab.experiments.recheck import recheck
from vitlab.experiments.record import judge, judged_again, read_records, record_of, write_record
from vitlab.experiments.record_numbers import entries_of, results_of
from vitlab.experiments.work import work_of

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs/results/data/reproduce"


def test_committed_records_state_replaced_networks_and_data() -> None:
    """Every record with trained networks, published weights or data has a sentence; counts need none."""
    for (name, scale), record in read_records(RECORDS).items():
        jobs = [entry["job"] for entry in record["numbers"]]
        replaced = any(job.get("recipe") or job.get("data") for job in jobs)
        assert not replaced or record["differences"], f"{name} at {scale}"


def test_stated_differences_enter_new_and_old_records() -> None:
    found = experiment("cb_fig_4")
    record = record_of(found, "small", [not_run(claim) for claim in found.claims], Results(), {}, ["One more."])
    assert record["differences"] == [*found.differences("small"), "One more."]
    old = {**record, "differences": ["One more."]}
    assert judged_again(found, old)["differences"] == record["differences"]


def test_unequal_training_of_the_arms_is_stated() -> None:
    """Of each CB experiment whose plain and changed networks differ in repeated augmentation at `full`."""
    unequal = set()
    for each in select(paper="cb"):
        runs = [run for job in each.plan("full") for run in work_of(job).needs]
        recipes = [run.recipe("trained", "{root}") for run in runs]
        small = [recipe for recipe in recipes if recipe.data == "imagenet" and "_base_" not in recipe.model]
        if len({recipe.augment.repeats for recipe in small}) > 1:
            unequal.add(each.name)
            assert "repeated augmentation" in " ".join(each.differences("full")), each.name
    assert {"cb_table_1", "cb_table_3", "cb_table_4", "cb_table_5", "cb_table_8"} <= unequal


@pytest.mark.parametrize(
    ("name", "used", "not_used"),
    [
        ("tapadl_table_4", "406 validation images", "test set"),
        ("tapadl_fig_6", "ACDC's validation set", "test set"),
        ("cb_table_10", "measured on val2014", "test-dev"),
    ],
)
def test_validation_images_that_replace_a_test_set_are_stated(name: str, used: str, not_used: str) -> None:
    """The labels of these test sets are not public: the jobs at `full` use validation images, and the page says so."""
    found = experiment(name)
    (sentence,) = found.differences("full")
    assert used in sentence and not_used in sentence
    assert not any("test'" in (job.data or "") for job in found.plan("full"))
    assert sentence in (ROOT / f"docs/papers/{name}.md").read_text(encoding="utf-8")


def through_json(results: Results) -> Results:
    return results_of(json.loads(json.dumps(entries_of(results), allow_nan=False)))


@pytest.mark.parametrize("name", NAMES)
def test_a_record_has_what_check_reads(name: str) -> None:
    """Judged from the entries of a record, every claim has the verdict that its measurements give."""
    found = experiment(name)
    for claim in found.claims:
        for effects in effects_of(claim).values():
            results = example_of(name)(claim, effects)
            stored = judge(found, through_json(results), "small")
            for own, other in zip(judge(found, results, "small"), stored, strict=True):
                assert own.outcome == other.outcome, claim.name
                assert (own.our_value is None) == (other.our_value is None), claim.name
                assert own.our_value is None or math.isclose(own.our_value, other.our_value or 0, abs_tol=1e-6)


def test_parts_store_what_differs_from_the_first() -> None:
    job = Job("plain", "attention_entropy", model="timm/x", images=8, repeats=2)
    axes = {"layer": ("a", "b")}
    parts = [
        layered("attention_entropy", axes, mean=(("layer",), [1.0, part]), bound=(("layer",), [5.0, np.nan]))
        for part in (1, 2)
    ]
    for number, each in enumerate(parts, 1):
        each.provenance["part"] = [number, 2]  # type: ignore[index]
    entries = entries_of(Results([(job, each) for each in parts]))
    assert list(entries[0]["values"]) == ["mean", "bound"] and list(entries[1]["values"]) == ["mean"]
    assert "axes" not in entries[1] and entries[1]["part"] == [2, 2]
    back = results_of(json.loads(json.dumps(entries, allow_nan=False)))
    for (own, found), each in zip(back.entries, parts, strict=True):
        assert own == job and found.axes == each.axes and found.dims == each.dims
        assert all(np.array_equal(found.values[key], each.values[key], equal_nan=True) for key in each.values)
    assert back.by_part("plain", "attention_entropy", lambda found: float(found.values["mean"][1])) == {
        (0, 1): 1.0,
        (0, 2): 2.0,
    }


def test_invalid_entries_are_refused() -> None:
    with pytest.raises(VitlabError, match="invalid entry"):
        results_of([{"job": {"arm": "plain"}}])


def test_committed_records_follow_from_their_numbers() -> None:
    """Outcome, numbers and explanation of every stored verdict are those that the stored numbers give today."""
    found = list(recheck(RECORDS))
    assert len(found) >= 10
    for each in found:
        assert each.outcomes == (), each.path
        stored = json.loads(each.path.read_text(encoding="utf-8"))
        assert [entry["why"] for entry in stored["verdicts"]] == [entry["why"] for entry in each.record["verdicts"]]


def test_a_changed_record_is_found_and_written(tmp_path: Path) -> None:
    found = experiment("hdvw_fig_d5")
    record = json.loads((RECORDS / "small/hdvw_fig_d5.json").read_text(encoding="utf-8"))
    assert record["verdicts"][0]["outcome"] == "holds"
    record["verdicts"][0] |= {"outcome": "does not hold", "why": "an old text"}
    path = write_record(tmp_path / "small/hdvw_fig_d5.json", record)
    (changed,) = recheck(tmp_path)
    assert changed.outcomes == ("msas: stored does not hold, now holds",)
    command = [sys.executable, "-m", "vitlab", "reproduce", "--recheck", str(tmp_path)]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 1 and "msas: stored does not hold, now holds" in ended.stdout
    assert json.loads(path.read_text(encoding="utf-8")) == judged_again(found, record)
    assert path.with_suffix(".svg").read_bytes() == (RECORDS / "small/hdvw_fig_d5.svg").read_bytes()
    again = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert again.returncode == 0 and "0 with other verdicts, 0 written" in again.stdout


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match="has no records"):
        list(recheck(tmp_path))
