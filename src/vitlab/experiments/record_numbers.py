"""Measurements in the record of an experiment: values with few elements, as plain data, and back. Imports no torch.

An entry has the fields of its job, the part of the images, and the values of the measurement with their axes. Entries
of the same job after the first one have only what differs from the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Job, Results
from vitlab.core.measurement import Measurement

__all__ = ["entries_of", "results_of"]

#: Fields of a job that say nothing about its measurement.
_COSTS = ("needs", "gpu_minutes", "gigabytes")

#: Values with more elements are not part of a record.
_MOST = 10_000

#: What an entry has of its measurement, each by name.
_PARTS = ("values", "dims", "axes")


def entries_of(results: Results) -> list[dict[str, Any]]:
    """Returns the measurements as plain data, floats rounded to nine digits."""
    first: dict[Job, dict[str, Any]] = {}
    entries = []
    for job, found in results.entries:
        stored = _stored(found)
        known = first.setdefault(job, stored)
        if known is not stored:
            stored = {
                kind: {name: value for name, value in stored[kind].items() if known[kind].get(name) != value}
                for kind in _PARTS
            }
        part = {"part": list(found.provenance["part"])} if "part" in found.provenance else {}
        entries.append({"job": _fields(job), **part, **{kind: each for kind, each in stored.items() if each}})
    return entries


def results_of(entries: Sequence[Mapping[str, Any]]) -> Results:
    """Returns the measurements of entries, as `check` needs them.

    >>> entry = {"job": {"arm": "plain", "procedure": "sizes", "model": "timm/x"}, "values": {"macs": 5}}
    >>> results_of([entry]).by_seed("plain", "sizes", "macs")
    {0: 5.0}
    """
    first: dict[Job, Mapping[str, Any]] = {}
    found = []
    for entry in entries:
        try:
            given: dict[str, Any] = {**entry["job"], "changes": tuple(entry["job"].get("changes", ()))}
            job = Job(**given)
            known = first.setdefault(job, entry)
            merged = {kind: {**known.get(kind, {}), **entry.get(kind, {})} for kind in _PARTS}
            found.append((job, _measurement(job, merged, entry.get("part"))))
        except (KeyError, TypeError, AttributeError) as error:
            raise VitlabError(f"invalid entry of a record ({error}); write the record again") from error
    return Results(found)


def _measurement(job: Job, stored: Mapping[str, Mapping[str, Any]], part: Sequence[int] | None) -> Measurement:
    values = {name: np.asarray(_with_nan(value)) for name, value in stored["values"].items()}
    about = {"part": part} if part else {}
    return Measurement(job.kind, job.arm, values, stored["dims"], stored["axes"], {}, about)


def _fields(job: Job) -> dict[str, Any]:
    """The fields of a job that differ from their defaults, without its costs."""
    found = {each.name: (getattr(job, each.name), each.default) for each in fields(job) if each.name not in _COSTS}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, (value, default) in found.items()
        if default is MISSING or value != default
    }


def _stored(found: Measurement) -> dict[str, dict[str, Any]]:
    values = {
        name: _rounded(np.asarray(value).tolist())
        for name, value in found.values.items()
        if 0 < np.size(value) <= _MOST and np.asarray(value).dtype.kind in "biufU"
    }
    dims = {name: list(found.dims[name]) for name in values if found.dims.get(name)}
    used = {axis for names in dims.values() for axis in names}
    axes = {name: list(labels) for name, labels in found.axes.items() if name in used}
    return {"values": values, "dims": dims, "axes": axes}


def _rounded(value: Any) -> Any:
    """Nine digits keep every number in single precision; numbers that are not finite become None, for JSON."""
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value


def _with_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_nan(each) for each in value]
    return math.nan if value is None else value
