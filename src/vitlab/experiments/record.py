"""The record of an experiment at a scale: verdicts, failures and numbers, as JSON. Imports no torch.

OUT/verdicts/SCALE/NAME.json

The numbers are those that the verdicts follow from (`record_numbers.py`), so that a record can be judged again without
its measurements (`judged_again`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Results, Scale, not_run
from vitlab.core.provenance import provenance
from vitlab.core.store import write_atomically
from vitlab.core.verdicts import Verdict
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.record_numbers import entries_of, results_of

__all__ = ["judge", "judged_again", "read_records", "record_of", "verdict_of", "write_record"]

#: Why statistical claims are not judged at the smallest scale.
SMOKE = "smoke scale proves nothing about a claim"


def judge(experiment: Experiment, results: Results, scale: Scale) -> list[Verdict]:
    """Returns one verdict per claim; at `smoke` only deterministic claims are judged."""
    verdicts = experiment.check(results)
    pairs = zip(experiment.claims, verdicts, strict=True)
    smoke = scale == "smoke"
    return [not_run(claim, SMOKE) if smoke and not claim.deterministic else verdict for claim, verdict in pairs]


def record_of(
    experiment: Experiment,
    scale: Scale,
    verdicts: Sequence[Verdict],
    results: Results,
    failures: Mapping[str, str],
    differences: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns the record of an experiment.

    Args:
        experiment: the experiment.
        scale: its scale.
        verdicts: one per claim.
        results: the measurements.
        failures: reasons of failed jobs by their titles.
        differences: what differs from the paper, or from the plan, besides `DIFFERENCES` of the experiment.
    """
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "scale": scale,
        "provenance": {name: provenance()[name] for name in ("vitlab", "python", "versions", "time")},
        "differences": _all_differences(experiment, scale, differences),
        "verdicts": _entries(experiment, verdicts),
        "failures": dict(failures),
        "numbers": entries_of(results),
    }


def judged_again(experiment: Experiment, record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the record with the verdicts that its numbers give today, and the differences that are stated today."""
    verdicts = judge(experiment, results_of(record["numbers"]), record["scale"])
    differences = _all_differences(experiment, record["scale"], record.get("differences", ()))
    about = {"title": experiment.title, "differences": differences}
    return {**record, **about, "verdicts": _entries(experiment, verdicts)}


def _all_differences(experiment: Experiment, scale: Scale, found: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*experiment.differences(scale), *found]))


def _entries(experiment: Experiment, verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    claims = zip(experiment.claims, verdicts, strict=True)
    return [{"name": claim.name, **_finite(asdict(verdict))} for claim, verdict in claims]


def write_record(path: Path, record: Mapping[str, Any]) -> Path:
    """Write a record, with one line for each of its measurements."""
    head = json.dumps({**record, "numbers": []}, indent=1, ensure_ascii=False)
    lines = ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in record["numbers"])
    text = head.removesuffix("[]\n}") + (f"[\n{lines}\n ]\n}}\n" if lines else "[]\n}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(text.encode())
    return path


def read_records(folder: Path) -> dict[tuple[str, Scale], dict[str, Any]]:
    """Returns the records in a folder `SCALE/NAME.json` by experiment and scale."""
    found: dict[tuple[str, Scale], dict[str, Any]] = {}
    for file in sorted(folder.glob("*/*.json")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            found[record["experiment"], record["scale"]] = record
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise VitlabError(f"{file} is not a record of an experiment ({error}); remove it") from error
    return found


def verdict_of(entry: Mapping[str, Any]) -> Verdict:
    """Returns the verdict that an entry of a record stores."""
    fields = {name: value for name, value in entry.items() if name != "name"}
    found = Verdict(**fields)
    low, high = found.interval or (None, None)
    if found.interval is None:
        return found
    ends = (-math.inf if low is None else float(low), math.inf if high is None else float(high))
    return replace(found, interval=ends)


def _finite(value: Any) -> Any:
    """The value with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
