"""The measurements of one model: which are made together, which are stored already, and their files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitlab.core.errors import ExtensionError, VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.step_cache import ReportProgress, step_cache
from vitlab.runner.measured_model import MeasuredModel, Procedure, digest


@dataclass(frozen=True)
class Kind:
    """Instruments or stress tests.

    Args:
        name: of the kind, for errors.
        known: returns the modules by name.
        run: measures with one of them.
        run_together: measures with several in a single pass; None where the kind has none of a shared pass.
    """

    name: str
    known: Callable[[], Mapping[str, str]]
    run: Callable[..., Measurement]
    run_together: Callable[..., Mapping[str, Measurement]] | None = None


@dataclass(frozen=True)
class Job:
    """Procedures that are measured in a single pass over one part of the images; usually only one."""

    procedures: tuple[Procedure, ...]
    part: int

    @property
    def title(self) -> str:
        """The names of its procedures."""
        return ", ".join(each.name for each in self.procedures)


@dataclass(frozen=True, eq=False)
class Pending:
    """A measurement to be made: its settings, inputs and files."""

    procedure: Procedure
    settings: Mapping[str, Any]
    inputs: Any
    beside: Mapping[str, Any]
    identity: str
    stem: Path
    part: tuple[int, int] | None

    @property
    def stored(self) -> bool:
        """Whether a measurement of the same weights, settings, inputs and code is stored."""
        try:
            return Measurement.load(self.stem).provenance.get("identity") == self.identity
        except VitlabError:
            return False

    @property
    def steps(self) -> Path:
        """The folder of its finished steps, which is removed when the measurement is stored."""
        return self.stem.with_name(f"{self.stem.name}.{self.identity}.steps")

    def save(self, result: Measurement) -> None:
        """Store a result with its identity."""
        about = {**result.provenance, "identity": self.identity, **({"part": list(self.part)} if self.part else {})}
        replace(result, settings={**self.settings, **result.settings}, provenance=about).save(self.stem)


def plan_jobs(procedures: Sequence[Procedure], repeats: int, kind: Kind) -> list[Job]:
    """The work on one model: those of a shared pass on the same inputs are one job for each part of the images."""
    jobs: dict[Any, list[Procedure]] = {}
    for index, each in enumerate(procedures):
        together = kind.run_together is not None and each.shares_pass
        jobs.setdefault(each.card.inputs if together else index, []).append(each)
    return [
        Job(tuple(group), part)
        for group in jobs.values()
        for part in range(1, (repeats if group[0].uses_images else 1) + 1)
    ]


def run_job(
    kind: Kind, model: MeasuredModel, job: Job, folder: Path, report_progress: ReportProgress
) -> tuple[list[Path], list[ExtensionError]]:
    """Make the measurements of a job that are not stored yet.

    Returns:
        The paths of all measurements, and the errors of extensions that failed.
    """
    wanted = [pending(model, each, job.part, folder) for each in job.procedures]
    missing = [each for each in wanted if not each.stored]
    alone = [] if _measured_together(kind, model, missing) else missing
    failures: dict[Path, ExtensionError] = {}
    for each in alone:
        with step_cache(each.steps, report_progress):
            name, also = each.procedure.name, {**each.beside, **each.settings}
            try:
                each.save(kind.run(name, model.model, each.inputs, name=model.name, **also))
            except ExtensionError as error:
                failures[each.stem] = error
    done = [each for each in wanted if each.stem not in failures]
    for each in done:
        if each not in missing:
            _rename(each.stem, model.name)
        shutil.rmtree(each.steps, ignore_errors=True)
    return [each.stem.with_name(f"{each.stem.name}.json") for each in done], list(failures.values())


def _measured_together(kind: Kind, model: MeasuredModel, missing: Sequence[Pending]) -> bool:
    """Measure several in one pass; returns whether it was done. It is not if an extension among them fails."""
    if len(missing) < 2 or kind.run_together is None:
        return False
    names = [each.procedure.name for each in missing]
    try:
        results = kind.run_together(names, model.model, missing[0].inputs, name=model.name)
    except ExtensionError:
        return False
    for each in missing:
        each.save(results[each.procedure.name])
    return True


def pending(model: MeasuredModel, procedure: Procedure, part: int, folder: Path) -> Pending:
    """Returns a measurement of one part of the images, to be made or stored already."""
    inputs, beside, fingerprint = model.inputs_for(procedure, part)
    identity = model.identity(procedure, fingerprint)
    split = (part, model.repeats) if model.repeats > 1 and procedure.uses_images else None
    name = f"{procedure.stem}.part{part}of{model.repeats}" if split else procedure.stem
    return Pending(procedure, model.settings(procedure), inputs, beside, identity, folder / name, split)


def _rename(stem: Path, name: str) -> None:
    """Set the model's name in a stored measurement to its present name."""
    stored = Measurement.load(stem)
    if stored.subject != name:
        model = {**stored.provenance.get("model", {}), "name": name}
        replace(stored, subject=name, provenance={**stored.provenance, "model": model}).save(stem)


def folder_of(text: str, out: Path) -> Path:
    """The folder for measurements of a model expression; unique for each expression."""
    words = re.sub(r"[^\w.-]+", "_", text).strip("_")[:80]
    return out / f"{words}-{digest(text)[:6]}"
