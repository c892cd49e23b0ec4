"""Experiments end to end: what is missing is run, failures are reported, verdicts follow the rules of the scale."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from experiments.small import DATA, ENTROPY, SHORT, TRAINED, VIT, experiment_of
from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Job, Scale
from vitlab.experiments.catalogue import experiment
from vitlab.experiments.plan import Plan
from vitlab.experiments.record import SMOKE, read_records, verdict_of
from vitlab.experiments.reproduce import Reproduced, reproduce, trained_networks
from vitlab.experiments.work import work_of

COUNT = Job("plain", "sizes", model=VIT)
CB = replace(TRAINED, arm="cb", changes=(*SHORT, f"model={VIT} | ContextBroadcast"))
BROKEN = replace(ENTROPY, arm="broken", model="timm/no_such_model")


def run(jobs: list[Job], out: Path, scale: Scale = "small", **options: object) -> Reproduced:
    plan = Plan([experiment_of("one", jobs)], scale, out)
    return next(iter(reproduce(plan, device="cpu", show=False, **options)))  # type: ignore[arg-type]


def test_claims_are_judged_from_the_results(tmp_path: Path) -> None:
    found = run([COUNT, TRAINED, CB], tmp_path)
    statistical, deterministic = found.verdicts
    assert found.failures == {}
    assert statistical.outcome == "inconclusive" and statistical.our_value is not None, "one pair has no interval"
    assert deterministic.outcome == "holds"
    page = found.page.read_text(encoding="utf-8")
    assert "the second arm is better" in page and "inconclusive" in page and "no number" in page


def test_a_folder_that_cannot_be_written_is_noticed_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    def engine(*_: object) -> dict[str, str]:
        raise AssertionError("jobs were started")

    plan = Plan([experiment_of("one", [ENTROPY])], "small", tmp_path / "file" / "out")
    with pytest.raises(VitlabError, match=r"out cannot be written \(Not a directory\); give another --out"):
        list(reproduce(plan, engine=engine))


def test_smoke_judges_deterministic_claims_only(tmp_path: Path) -> None:
    found = run([COUNT, TRAINED, CB], tmp_path, "smoke")
    assert [verdict.outcome for verdict in found.verdicts] == ["not run", "holds"]
    assert found.verdicts[0].why == SMOKE


def test_a_failed_job_is_reported_and_the_others_continue(tmp_path: Path) -> None:
    found = run([BROKEN, COUNT], tmp_path)
    assert list(found.failures) == ["attention_entropy of broken, seed 0"]
    assert "no_such_model" in found.failures["attention_entropy of broken, seed 0"]
    assert found.verdicts[1].outcome == "holds"
    assert "no_such_model" in found.page.read_text(encoding="utf-8")


@pytest.mark.parametrize("wrong", [{"changes": (*SHORT, "optimizer.lr=1e30")}, {"recipe": "no_such_recipe"}])
def test_a_job_with_an_invalid_setting_is_reported_and_the_others_continue(wrong: dict, tmp_path: Path) -> None:
    found = run([replace(TRAINED, arm="wrong", **wrong), COUNT], tmp_path)
    assert list(found.failures) == ["training of wrong, seed 0"]
    assert any(word in found.failures["training of wrong, seed 0"] for word in ("1e+30", "no_such_recipe"))
    assert found.verdicts[1].outcome == "holds"


def test_jobs_of_a_failed_training_name_it(tmp_path: Path) -> None:
    changes = (*SHORT, "model=timm/no_such_model")
    found = run(
        [replace(TRAINED, changes=changes), replace(ENTROPY, model="", recipe="quick", changes=changes)], tmp_path
    )
    assert len(found.failures) == 2
    assert all(reason.startswith("its training failed: ") for reason in found.failures.values())


def test_stored_work_is_not_planned_again_unless_forced(tmp_path: Path) -> None:
    plan = Plan([experiment_of("one", [COUNT, TRAINED])], "small", tmp_path)
    assert (plan.cost().runs, plan.cost().measurements) == (1, 2)
    run([COUNT, TRAINED], tmp_path)
    assert (plan.cost().runs, plan.cost().measurements) == (0, 0)
    assert (plan.cost(force=True).runs, plan.cost(force=True).measurements) == (1, 2), "all of it is made again"
    weights = next((tmp_path / "runs").glob("*/model.safetensors"))
    before = weights.stat().st_mtime_ns
    run([COUNT, TRAINED], tmp_path)
    assert weights.stat().st_mtime_ns == before
    unfinished = tmp_path / "unfinished" / work_of(COUNT).key() / "parts" / "old.json"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_text("{}", encoding="utf-8")
    run([COUNT, TRAINED], tmp_path, force=True)
    assert weights.stat().st_mtime_ns != before and not unfinished.exists()


def test_the_disk_estimate_is_of_the_size_of_the_files(tmp_path: Path) -> None:
    """Within a factor of two of what is written for this plan."""
    jobs = [TRAINED, replace(TRAINED, arm="snapshots", changes=(*SHORT, "snapshots=(1, 2)"))]
    estimate = Plan([experiment_of("one", jobs)], "small", tmp_path).cost().written * 1e9 - 2 * 2e5
    run(jobs, tmp_path)
    written = sum(file.stat().st_size for file in (tmp_path / "runs").rglob("*.safetensors"))
    assert 0.5 < estimate / written < 2


def test_the_cost_counts_a_shared_training_once(tmp_path: Path) -> None:
    shared = [replace(TRAINED, gpu_minutes=60, needs=("cifar",), gigabytes=2.0)]
    shared.append(
        replace(ENTROPY, model="", recipe="quick", changes=SHORT, gpu_minutes=66, needs=("cifar",), gigabytes=2)
    )
    first, second = experiment_of("first", shared), experiment_of("second", [*shared, COUNT])
    cost = Plan([first, second], "full", tmp_path).cost()
    assert (cost.runs, cost.measurements, cost.gpu_hours, cost.gigabytes) == (1, 3, 1.1, 2.0)
    assert "1 training runs, 3 measurements" in str(cost) and "cifar" in str(cost)


def test_another_root_in_the_same_folder_is_measured_again(tmp_path: Path) -> None:
    """The result of a sample is not that of the full set; the oracle is a fresh results folder."""
    roots = {"sample": 3, "full": 200}
    for name, color in roots.items():
        for index in range(4):
            file = tmp_path / name / "photos" / "val" / ("cat" if index % 2 else "dog") / f"{name}{index}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 32), (color, 16 * index, 0)).save(file)
    job = replace(ENTROPY, data="folder('photos')", images=4)

    def mean(out: str, name: str) -> float:
        plan = Plan([experiment_of("one", [job])], "small", tmp_path / out, str(tmp_path / name))
        assert not any(found.failures for found in reproduce(plan, device="cpu", show=False))
        ((_, measurement),) = plan.results("one").entries
        return float(measurement.values["mean"].mean())

    sample, full = mean("out", "sample"), mean("out", "full")
    assert full == mean("fresh", "full") != sample and mean("out", "sample") == sample


def test_records_are_read_back(tmp_path: Path) -> None:
    found = run([COUNT, TRAINED, CB], tmp_path)
    record = read_records(tmp_path / "verdicts")["one", "small"]
    assert [verdict_of(entry) for entry in record["verdicts"]] == found.verdicts, "infinite intervals included"
    assert record["differences"] == [f"Trained on {DATA} for 2 epochs: vit_tiny_patch16_224."]
    assert record["differences"][0] in found.page.read_text(encoding="utf-8")
    sizes = next(entry for entry in record["numbers"] if entry["job"]["procedure"] == "sizes")
    assert sizes["values"]["parameters"] == 20185
    json.dumps(record, allow_nan=False)


def test_only_networks_that_are_trained_are_called_so() -> None:
    """Counts and timings use the models of recipes without training them; a first training counts, too."""
    untrained = [job for name in ("cb_table_6", "hdvw_throughput") for job in experiment(name).plan("small")]
    assert trained_networks(job for job in untrained if job.kind in ("sizes", "speed")) == []
    jobs = experiment("tapadl_table_4").plan("full")
    text = "Trained on imagenet for 300 epochs: fan_base_hybrid; on cityscapes for 160,000 iterations: segformer."
    assert trained_networks(jobs) == [text]


def test_a_run_without_numbers_is_not_a_result(tmp_path: Path) -> None:
    """It leaves no record, and the record of an earlier run stays as it is."""
    found = run([BROKEN], tmp_path)
    assert found.failures and found.page.is_file() and read_records(tmp_path / "verdicts") == {}
    run([COUNT], tmp_path)
    before = read_records(tmp_path / "verdicts")
    run([BROKEN], tmp_path)
    assert before and read_records(tmp_path / "verdicts") == before


def test_a_mistake_in_check_is_a_failure(tmp_path: Path) -> None:
    experiment = experiment_of("one", [COUNT])
    experiment.module.check = lambda results: results.missing
    found = next(iter(reproduce(Plan([experiment], "small", tmp_path), device="cpu", show=False)))
    assert "AttributeError" in found.failures["check"]
    assert {verdict.outcome for verdict in found.verdicts} == {"not run"}


@pytest.mark.parametrize("repeats", [1, 2])
def test_pages_draw_every_seed_and_part(tmp_path: Path, repeats: int) -> None:
    jobs = [replace(ENTROPY, seed=seed, repeats=repeats) for seed in (0, 1)]
    page = run(jobs, tmp_path).page.read_text(encoding="utf-8")
    assert "plain, seed 0" in page and "plain, seed 1" in page
