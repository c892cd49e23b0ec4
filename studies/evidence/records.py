"""Judge the experiments of the papers from the runs of `studies/cifar100_evidence.py`, at the scale `small`.

    PYTHONPATH=studies python -m evidence.records docs/results/data/cifar100_evidence_runs

Writes the records `docs/results/data/reproduce/small/NAME.json` and their pictures, of every experiment that has a job
with the recipe of a run. Then write the pages: `python docs/generator/paper_pages.py`. Add runs and repeat both:
claims whose runs are missing are *not run*. An arm counts from five runs on, as in the evidence. Counts, which need no
training, are computed; what a record has from other measurements is kept. Runs with held-out images judge nothing: they
search settings.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evidence.collecting import read_runs
from evidence.comparing import LEAST_PAIRS
from evidence.run_measurements import measurement_of
from evidence.stored_recipes import same_recipe, settings_of
from vitlab.core import plugins
from vitlab.core.experiment import Job, Results
from vitlab.core.expressions import parse_model
from vitlab.core.measurement import Measurement
from vitlab.experiments.catalogue import Experiment, experiment
from vitlab.experiments.pictures import write_picture
from vitlab.experiments.record import judge, record_of, write_record
from vitlab.experiments.record_numbers import results_of
from vitlab.experiments.runner import measured
from vitlab.experiments.work import work_of

__all__ = ["entries_from", "record_from", "write_records"]

Entries = list[tuple[Job, Measurement]]
RECORDS = Path(__file__).resolve().parents[2] / "docs/results/data/reproduce"


def write_records(runs: Sequence[Mapping[str, Any]], folder: Path) -> Iterator[Path]:
    """Write the records of all experiments that the runs have a job of, in `FOLDER/small`.

    Yields:
        The file of each record.
    """
    for name in plugins.experiments():
        path = folder / "small" / f"{name}.json"
        stored = json.loads(path.read_text(encoding="utf-8"))["numbers"] if path.is_file() else []
        record = record_from(experiment(name), runs, results_of(stored))
        if record is not None:
            write_record(path, record)
            write_picture(path, experiment(name), record)
            yield path


def record_from(found: Experiment, runs: Sequence[Mapping[str, Any]], stored: Results) -> dict[str, Any] | None:
    """Returns the record of an experiment at `small`; None if no run belongs to it, or if no claim can be judged.

    Args:
        found: the experiment.
        runs: the contents of the files of the runs.
        stored: other measurements of its record; those of jobs that a recipe trains are replaced.
    """
    jobs = found.plan("small")
    trained, notes = entries_from(jobs, runs)
    if not trained:
        return None
    others = [entry for entry in stored.entries if entry[0].model]
    others += _counts(jobs, {job.procedure + job.arm for job, _ in others})
    results = Results([*others, *trained])
    verdicts = judge(found, results, "small")
    if all(verdict.outcome == "not run" for verdict in verdicts):
        return None
    return record_of(found, "small", verdicts, results, {}, notes)


def entries_from(jobs: Sequence[Job], runs: Sequence[Mapping[str, Any]]) -> tuple[Entries, list[str]]:
    """Returns the measurements that runs have of jobs, with the seeds of the runs, and what differs, in sentences."""
    seeds = Counter((run["condition"], run["arm"]) for run in runs if not run["holdout"])
    enough = {arm for arm, count in seeds.items() if count >= LEAST_PAIRS}
    counted = [run for run in runs if not run["holdout"] and (run["condition"], run["arm"]) in enough]
    usable = [(run, settings_of(run["recipe"])) for run in counted]
    found: Entries = []
    notes: dict[str, None] = {}
    missing: dict[str, None] = {}
    variants = {_without_seed(job): job for job in jobs if job.recipe and job.snapshot is None and not job.trained}
    for job in variants.values():
        training = work_of(job).training
        if training is None:
            continue
        recipe = training.recipe("trained", "{root}")
        matching = [run for run, settings in usable if same_recipe(settings, recipe)]
        entries = []
        for run in matching:
            measurement, differences = measurement_of(job, run)
            if measurement is not None:
                entries.append((replace(job, seed=run["seed"]), measurement))
                notes |= dict.fromkeys(differences)
        found += entries
        if entries:
            notes[_network(recipe.model, recipe.data, recipe.epochs)] = None
        else:
            missing[f"{job.kind} of {job.arm}"] = None
    return found, [*notes, *([f"Without runs: {', '.join(missing)}."] if missing and found else [])]


def _counts(jobs: Sequence[Job], known: set[str]) -> Entries:
    """The measurements of models that need no data and no training, such as their sizes."""
    found: Entries = []
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs:
            if job.model and not job.needs and job.procedure + job.arm not in known:
                found += [(job, each) for each in measured(work_of(job), Path(folder), device="cpu")]
    return found


def _without_seed(job: Job) -> Job:
    return replace(job, seed=0)


def _network(model: str, data: str, epochs: int) -> str:
    """What was trained in place of the paper's network."""
    parsed = parse_model(model)
    side, heads = parsed.settings["patch_size"], parsed.settings["num_heads"]
    return (
        f"The trained networks are {parsed.name} with patches of {side}×{side} and {heads} heads on {data}, {epochs} "
        "epochs (the runs of the evidence on CIFAR-100), in place of the paper's network and data."
    )


def main() -> None:
    """Read the runs and write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder of the runs")
    parser.add_argument("--out", type=Path, default=RECORDS, help="the folder of the records")
    options = parser.parse_args()
    for path in write_records(read_runs(options.runs), options.out):
        print(path)


if __name__ == "__main__":
    main()
