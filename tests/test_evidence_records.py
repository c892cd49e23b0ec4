"""Experiments judged from the evidence runs: which runs belong to which jobs, what is read, and what differs."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Job, Results
from vitlab.experiments.catalogue import experiment
from vitlab.experiments.record import verdict_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "studies"))

from evidence.collecting import read_runs  # noqa: E402
from evidence.conditions import all_jobs, recipe_of  # noqa: E402
from evidence.records import entries_from, record_from  # noqa: E402
from evidence.run_measurements import measurement_of  # noqa: E402
from evidence.stored_recipes import same_recipe, settings_of  # noqa: E402

RUNS = ROOT / "docs/results/data/cifar100_evidence_runs"
RECORDS = ROOT / "docs/results/data/reproduce/small"


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    return read_runs(RUNS)


def like(run: dict[str, Any], text: str, seed: int, **changes: Any) -> dict[str, Any]:
    """A copy of a run, as if it were that of another condition and arm."""
    job = next(job for job in all_jobs([text]) if job.seed == seed)
    recipe = repr(recipe_of(job))
    about = {"condition": job.condition.name, "arm": job.arm.name, "seed": seed, "holdout": job.condition.holdout}
    return {**run, **about, "recipe": recipe, "epochs": recipe_of(job).epochs, **changes}


def test_a_stored_recipe_is_found_by_its_settings() -> None:
    """The text of a recipe gives its settings back; every other setting makes it another recipe, the seed does not."""
    jobs = {text: all_jobs([text])[0] for text in ("centre-cb", "places-all_blocks", "tapadl-adl", "one_head-cb")}
    for text, job in jobs.items():
        stored = settings_of(repr(recipe_of(job)))
        for other, their in jobs.items():
            recipe = replace(recipe_of(their), seed=7, evaluate_every=1)
            assert same_recipe(stored, recipe) == (text == other), (text, other)
    recipe = recipe_of(jobs["centre-cb"])
    stored = settings_of(repr(recipe))
    assert not same_recipe(stored, replace(recipe, optimizer=replace(recipe.optimizer, lr=0.002)))
    assert not same_recipe({**stored, "unknown": 1}, recipe)
    assert same_recipe({name: value for name, value in stored.items() if name != "sharded"}, recipe), "a new setting"
    explicit = recipe.model.replace("(blocks='upper')", "(at='mlp.out', blocks='upper')")
    assert same_recipe(stored, replace(recipe, model=explicit)), "the default seam of CB"


@pytest.mark.parametrize("text", ["Recipe(", "open('x')", "Recipe(1)", "Recipe(model=open('x'))", "3"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(VitlabError, match="not the text of a recipe"):
        settings_of(text)


def test_measurements_are_read_by_name(runs: list[dict[str, Any]]) -> None:
    run = runs[0]
    job = Job("plain", "adversarial(attacks='fgsm')", recipe="quick", images=10_000)
    found, differences = measurement_of(job, run)
    assert found is not None and differences == ["adversarial is measured on 2,000 images instead of 10,000."]
    assert float(found.values["accuracy"][found.axes["attack"].index("fgsm"), 0]) == pytest.approx(
        run["measured"]["adversarial"]["accuracy"][0][0]
    )
    curve, _ = measurement_of(Job("plain", "training", recipe="quick"), run)
    assert curve is not None and curve.values["top1"][-1] == run["top1"] and np.isnan(curve.values["top1"][0])
    assert len(curve.values["train_loss"]) == run["epochs"]
    for procedure in ("attention_distance", "attention_diversity(tau=2.0)", "corruptions(severities=(3,))"):
        assert measurement_of(replace(job, procedure=procedure), run) == (None, []), procedure


def test_table_2_has_the_paired_differences_of_the_runs(runs: list[dict[str, Any]]) -> None:
    """Against scipy on the numbers of the files; ViT-S and CB in all layers have no runs."""
    record = record_from(experiment("cb_table_2"), runs, Results())
    assert record is not None
    top1 = {(run["arm"], run["seed"]): run["top1"] for run in runs if run["condition"] == "centre"}
    pairs = [top1["cb", seed] - top1["plain", seed] for arm, seed in top1 if arm == "cb" and ("plain", seed) in top1]
    verdicts = {entry["name"]: verdict_of(entry) for entry in record["verdicts"]}
    judged = verdicts["tiny upper: Acc@1"]
    low, high = stats.t.interval(0.95, len(pairs) - 1, np.mean(pairs), stats.sem(pairs))
    assert judged.our_value == pytest.approx(np.mean(pairs)) and judged.interval == pytest.approx((low, high))
    assert verdicts["small upper: Acc@1"].outcome == "not run"
    assert any(
        "vit_tiny_patch16_224 with patches of 4×4" in each and "cifar100" in each for each in record["differences"]
    )
    assert any(each.startswith("Without runs: ") and "small upper" in each for each in record["differences"])


def test_more_runs_change_the_record(runs: list[dict[str, Any]]) -> None:
    """Fewer than five pairs judge nothing, as in the evidence; other epochs and held-out images do not count."""
    base = next(run for run in runs if run["condition"] == "centre" and run["arm"] == "plain")
    plain = [like(base, "one_head-plain", seed, top1=50.0, metrics=_last(base, 50.0)) for seed in range(100, 105)]
    cb = [
        like(base, "one_head-cb", seed, top1=52.0, metrics=_last(base, 52.0 + seed / 1000)) for seed in range(100, 105)
    ]

    def outcome(count: int) -> str:
        record = record_from(experiment("cb_fig_9"), [*plain, *cb[:count]], Results())
        return "no record" if record is None else str(record["verdicts"][0]["outcome"])

    assert [outcome(count) for count in (0, 4, 5)] == ["no record", "no record", "holds"]
    searched = [{**run, "holdout": 5000} for run in [*plain, *cb]]
    assert record_from(experiment("cb_fig_9"), searched, Results()) is None
    shorter = [like(run, f"epochs50-{run['arm']}", run["seed"]) for run in [*plain, *cb]]
    jobs = experiment("cb_fig_9").plan("small")
    assert entries_from(jobs, shorter)[0] == []


def _last(run: dict[str, Any], top1: float) -> list[dict[str, Any]]:
    return [*run["metrics"][:-1], {**run["metrics"][-1], "top1": top1}]


def test_other_measurements_of_a_record_are_kept(runs: list[dict[str, Any]]) -> None:
    """The entropy of centre runs is judged, and the counts that a record has are not computed again."""
    counted = json.loads((RECORDS / "tapadl_table_1.json").read_text(encoding="utf-8"))
    sizes = [entry for entry in counted["numbers"] if entry["job"]["procedure"] == "sizes"]
    assert len(sizes) == 7 and {entry["outcome"] for entry in counted["verdicts"][:14]} == {"holds"}
    entropy = record_from(experiment("cb_fig_7"), runs, Results())
    assert entropy is not None
    verdicts = {entry["name"]: entry for entry in entropy["verdicts"]}
    deep = [
        {
            run["seed"]: np.mean(run["measured"]["attention_entropy"]["class_row"][6:])
            for run in runs
            if (run["condition"], run["arm"]) == ("centre", arm)
        }
        for arm in ("plain", "cb")
    ]
    expected = np.mean([deep[0][seed] - deep[1][seed] for seed in deep[1] if seed in deep[0]])
    assert verdicts["class token"]["our_value"] == pytest.approx(expected)
    assert verdicts["distance kept"]["outcome"] == "not run", "distance was not measured in these runs"


def test_committed_records_are_those_of_the_committed_runs(runs: list[dict[str, Any]]) -> None:
    """Every experiment with a run has a record with the effects of these runs."""
    for name in ("cb_fig_7", "cb_table_2", "cb_table_8"):
        stored = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
        record = record_from(experiment(name), runs, Results())
        assert record is not None and stored["verdicts"] == json.loads(json.dumps(record["verdicts"])), (
            "run: PYTHONPATH=studies python -m evidence.records docs/results/data/cifar100_evidence_runs"
        )
        assert stored["differences"] == record["differences"]
