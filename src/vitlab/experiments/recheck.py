"""Judge stored records again, from their numbers, without training or measuring. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitlab.core.errors import VitlabError
from vitlab.experiments.catalogue import experiment
from vitlab.experiments.pictures import write_picture
from vitlab.experiments.record import judged_again, read_records, write_record

__all__ = ["Rechecked", "recheck"]


@dataclass(frozen=True)
class Rechecked:
    """A record that was judged again.

    Args:
        path: its file.
        record: the record with the verdicts of today.
        outcomes: claims whose outcome or numbers differ from the stored ones, with both.
        texts: whether other fields differ, such as the explanation of a verdict.
    """

    path: Path
    record: Mapping[str, Any]
    outcomes: tuple[str, ...]
    texts: bool


def recheck(folder: Path, *, write: bool = False) -> Iterator[Rechecked]:
    """Judge the records `SCALE/NAME.json` of a folder again.

    Args:
        folder: of the records.
        write: whether to write the verdicts of today into the records, and their pictures; the numbers of the records
            stay as they are.

    Yields:
        Each record, in the order of the files.
    """
    records = read_records(folder)
    if not records:
        raise VitlabError(f"{folder} has no records; expected files SCALE/NAME.json, as in OUT/verdicts")
    for (name, scale), record in records.items():
        today = judged_again(experiment(name), record)
        today["verdicts"] = _unless_rounded(record["verdicts"], today["verdicts"])
        path = folder / scale / f"{name}.json"
        if write and today != record:
            write_record(path, today)
        if write:
            write_picture(path, experiment(name), today)
        yield Rechecked(path, today, tuple(_differences(record, today)), today != record)


def _differences(record: Mapping[str, Any], today: Mapping[str, Any]) -> Iterator[str]:
    stored = {entry["name"]: entry for entry in record["verdicts"]}
    for entry in today["verdicts"]:
        old = stored.pop(entry["name"], None)
        if old is None:
            yield f"{entry['name']}: new, {entry['outcome']}"
        elif old["outcome"] != entry["outcome"]:
            yield f"{entry['name']}: stored {old['outcome']}, now {entry['outcome']}"
        elif not all(_close(old[name], entry[name]) for name in ("paper_value", "our_value", "smallest_relevant")):
            yield f"{entry['name']}: stored {old['our_value']}, now {entry['our_value']}"
        elif not all(map(_close, old["interval"] or [], entry["interval"] or [])):
            yield f"{entry['name']}: stored interval {old['interval']}, now {entry['interval']}"
    yield from (f"{name}: the experiment has no such claim" for name in stored)


def _unless_rounded(stored: Sequence[dict[str, Any]], today: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The verdicts of today; the stored one where they differ in the rounding of numbers only."""
    known = {entry["name"]: entry for entry in stored}
    return [known[entry["name"]] if _same(known.get(entry["name"], {}), entry) else entry for entry in today]


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same(first[name], second[name]) for name in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, int | float) and isinstance(second, int | float):
        return _close(first, second)
    return bool(first == second)


def _close(first: float | None, second: float | None) -> bool:
    """Whether two numbers are equal up to the rounding of the stored ones."""
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-6)
