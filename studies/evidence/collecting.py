"""Collect the runs' JSON files into one small document for the tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evidence.conditions import Job, all_jobs, recipe_of
from evidence.metrics import layers_of, values_of
from evidence.stored_recipes import effective, settings_of
from vitlab.core.errors import VitlabError

__all__ = ["collect", "read_runs"]


def collect(folder: Path) -> dict[str, Any]:
    """Returns all runs of a folder: their metrics, seconds and provenance."""
    runs = read_runs(folder)
    return {"made_with": _origins(runs), "images": _images(runs), "runs": [_small(run) for run in runs]}


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """Returns the contents of all files of a folder, in the order of the conditions.

    Runs that cannot be compared are refused: trials with other settings, other data, or other images measured.
    """
    jobs = {job.name: job for job in all_jobs()}
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    if not found:
        raise VitlabError(f"{folder} holds no results (*.json); give the --out of studies/cifar100_evidence.py")
    for name, run in found.items():
        if name not in jobs:
            raise VitlabError(f"{folder / name}.json belongs to no condition; move it elsewhere")
        _check(name, run, jobs[name])
    _check_alike(found)
    return [found[name] for name in jobs if name in found]


def _small(run: Mapping[str, Any]) -> dict[str, Any]:
    shared = re.search(r"--workers[ =](\d+)", run["provenance"]["command"])
    return {
        **{key: run[key] for key in ("condition", "arm", "seed", "epochs", "images_per_second")},
        "seconds": run["seconds"],
        "processes": int(shared.group(1)) if shared else 1,
        "values": values_of(run),
        "layers": layers_of(run),
    }


def _check(name: str, run: Mapping[str, Any], job: Job) -> None:
    """Raise if a file is not the run of its name."""
    given = run["condition"], run["arm"], run["seed"]
    if given != (job.condition.name, job.arm.name, job.seed):
        raise VitlabError(f"{name}.json holds the run {'-'.join(map(str, given))}; give files their own names")
    epochs = recipe_of(job).epochs
    if run["epochs"] != epochs:
        raise VitlabError(f"{name} was trained for {run['epochs']} epochs, not {epochs}; leave trial runs out")
    if run["holdout"] != job.condition.holdout:
        raise VitlabError(f"{name} held out {run['holdout']} images, not {job.condition.holdout}; run it again")


def _check_alike(runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise if recipes differ within an arm, or measurement settings within a kind."""
    first: dict[tuple[Any, ...], tuple[str, Any]] = {}
    for name, run in runs.items():
        facts = {"data": run["provenance"]["data"]}
        for kind, measured in run["measured"].items():
            facts[kind] = measured["images"], measured["settings"]
        facts[f"recipe of {run['condition']}-{run['arm']}"] = effective(settings_of(run["recipe"]))
        for kind, fact in facts.items():
            other, expected = first.setdefault((run["holdout"], kind), (name, fact))
            if fact != expected:
                raise VitlabError(f"{name} and {other} differ in {kind}: {fact} and {expected}; measure them alike")


def _origins(runs: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Returns the distinct devices, versions and commands of the runs."""
    about = [run["provenance"] for run in runs]
    made = {
        "device": [each["device"] for each in about],
        "vitlab": [each["vitlab"] for each in about],
        "torch": [each["versions"]["torch"] for each in about],
        "command": [_portable(each["command"]) for each in about],
    }
    return {key: sorted(set(values)) for key, values in made.items()}


def _images(runs: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Returns the number of test images of each measurement; runs with held-out training images are ignored."""
    tested = [run["measured"] for run in runs if not run["holdout"]]
    return {kind: measured["images"] for run in tested for kind, measured in run.items()}


def _portable(command: str) -> str:
    """Remove machine-specific folders.

    >>> _portable("/a/b/cifar100_evidence.py --out /tmp/x/evidence --workers 2")
    'cifar100_evidence.py --out evidence --workers 2'
    """
    return re.sub(r"(?<![^\s=])/(?:[^\s/]+/)*", "", command)
