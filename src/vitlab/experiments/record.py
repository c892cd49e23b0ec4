"""The record of an experiment at a scale: verdicts, failures and small numbers, as JSON. Imports no torch.

OUT/verdicts/SCALE/NAME.json
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Results, Scale, not_run
from vitlab.core.provenance import provenance
from vitlab.core.store import write_atomically
from vitlab.core.verdicts import Verdict
from vitlab.experiments.catalogue import Experiment

__all__ = ["judge", "read_records", "verdict_of", "write_record"]

#: Why statistical claims are not judged at the smallest scale.
SMOKE = "smoke scale proves nothing about a claim"

#: Values with more elements are not part of a record.
_MOST = 64


def judge(experiment: Experiment, results: Results, scale: Scale) -> list[Verdict]:
    """Returns one verdict per claim; at `smoke` only deterministic claims are judged."""
    verdicts = experiment.check(results)
    pairs = zip(experiment.claims, verdicts, strict=True)
    smoke = scale == "smoke"
    return [not_run(claim, SMOKE) if smoke and not claim.deterministic else verdict for claim, verdict in pairs]


def write_record(
    path: Path,
    experiment: Experiment,
    scale: Scale,
    verdicts: Sequence[Verdict],
    results: Results,
    failures: Mapping[str, str],
) -> Path:
    """Write the record of an experiment.

    Args:
        path: the file to write.
        experiment: the experiment.
        scale: its scale.
        verdicts: one per claim.
        results: the measurements.
        failures: reasons of failed jobs by their titles.
    """
    claims = zip(experiment.claims, verdicts, strict=True)
    record = {
        "experiment": experiment.name,
        "title": experiment.title,
        "scale": scale,
        "provenance": {name: provenance()[name] for name in ("vitlab", "python", "versions", "time")},
        "verdicts": [{"name": claim.name, **asdict(verdict)} for claim, verdict in claims],
        "failures": dict(failures),
        "numbers": [
            {"arm": job.arm, "procedure": job.procedure, "seed": job.seed, "data": job.data, **_small(found.values)}
            for job, found in results.entries
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(json.dumps(_finite(record), indent=1, ensure_ascii=False).encode())
    return path


def read_records(folder: Path) -> dict[tuple[str, Scale], dict[str, Any]]:
    """Returns the records in a folder `SCALE/NAME.json` by experiment and scale."""
    found: dict[tuple[str, Scale], dict[str, Any]] = {}
    for file in sorted(folder.glob("*/*.json")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            found[record["experiment"], record["scale"]] = record
        except (OSError, ValueError, KeyError, TypeError) as error:
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


def _small(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The values of a measurement with few elements, rounded to six digits."""
    return {
        "values": {
            name: _rounded(np.asarray(value).tolist())
            for name, value in values.items()
            if np.size(value) <= _MOST and np.asarray(value).dtype.kind in "biufU"
        }
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value


def _finite(value: Any) -> Any:
    """The value with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
