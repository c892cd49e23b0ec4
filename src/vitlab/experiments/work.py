"""The work of jobs: training runs and measurements, each with a key of its inputs. Data that is files imports torch.

OUT/runs/KEY/                  a training run
OUT/measurements/KEY/          the measurements of a job, one per part of the images; equal jobs share them
OUT/unfinished/KEY/            measurements in progress, which resume
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from vitlab.core import descriptions, plugins
from vitlab.core.code_version import code_version
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.experiment import Job
from vitlab.core.expressions import parse_call
from vitlab.core.measurement import Measurement
from vitlab.core.recipe import Recipe, change
from vitlab.experiments import fingerprints
from vitlab.experiments.fingerprints import (
    data_fingerprint,
    files_fingerprint,
    libraries,
    trained_on,
    weights_digests,
)

__all__ = ["SPECIAL", "Training", "Work", "all_work", "clear_key_cache", "module_of", "root_of", "work_of"]

#: Procedures that are neither instruments nor stress tests, and the modules whose code they run.
SPECIAL = {
    "training": "vitlab.experiments.training_curve",
    "sizes": "vitlab.model_sizes",
    "blocks": "vitlab.experiments.block_plan",
    "speed": "vitlab.experiments.speed",
}

#: Special procedures that use the model of a recipe without training it.
_UNTRAINED = ("sizes", "blocks", "speed")


@dataclass(frozen=True)
class Training:
    """A training run.

    Args:
        text: the recipe expression.
        changes: settings that replace those of the recipe.
        seed: the seed of the run.
        first: the run whose weights replace `{trained}`.
    """

    text: str
    changes: tuple[str, ...] = ()
    seed: int = 0
    first: Training | None = None

    @property
    def needs(self) -> tuple[Training, ...]:
        """The runs that it starts from, in the order of training."""
        return () if self.first is None else (*self.first.needs, self.first)

    def recipe(self, trained: str = "", root: str = "") -> Recipe:
        """The recipe with paths in place of `{trained}` and `{root}`."""
        text, *changes = (_filled(each, trained, root) for each in (self.text, *self.changes))
        return replace(change(plugins.recipe(text), changes), seed=self.seed)

    def key(self, root: str = "") -> str:
        """The digest of all settings that differ from the defaults, data, weights, code, and the run it starts from."""
        return _training_key(self, root)

    def folder(self, out: Path, root: str = "") -> Path:
        """The run folder."""
        return out / "runs" / self.key(root)

    def done(self, out: Path, root: str = "") -> bool:
        """Whether the run has its final weights."""
        return (self.folder(out, root) / "model.safetensors").is_file()

    def resolved(self, out: Path, root: str) -> Recipe:
        """The recipe to train, with the paths of this results folder."""
        return self.recipe(_weights(self.first, out, root), root)


@dataclass(frozen=True)
class Work:
    """The measurement of a job: what it needs and where it is stored.

    Args:
        job: the job; its arm has no influence on the key.
        training: the run to train first; None for a job of a model that is not trained.
    """

    job: Job
    training: Training | None

    @property
    def needs(self) -> tuple[Training, ...]:
        """The runs that it needs, in the order of training."""
        return () if self.training is None else (*self.training.needs, self.training)

    def model(self, out: Path, root: str) -> str:
        """The model expression to measure."""
        if self.job.model:
            return _filled(self.job.model, _weights(self.training, out, root), root)
        if self.training is None:
            return _recipe_run(self.job).recipe("trained", root).model
        folder = self.training.folder(out, root).resolve()
        if self.job.snapshot is None:
            return f"file/{folder}"
        return f"file/{folder}/snapshots/epoch-{self.job.snapshot:04d}.safetensors"

    def key(self, root: str = "") -> str:
        """The digest of its inputs: model or recipe, weights, data, preprocessing, procedure, seed and code."""
        return _work_key(self, root)

    def folder(self, out: Path, root: str = "") -> Path:
        """The folder of its measurements, which is complete if it exists."""
        return out / "measurements" / self.key(root)

    def results(self, out: Path, root: str = "") -> list[Measurement]:
        """Returns the stored measurements, named after the arm of the job; empty if there are none."""
        found = [Measurement.load(file) for file in sorted(self.folder(out, root).glob("*.json"))]
        return [_named(measurement, self.job.arm) for measurement in found]


@cache
def _training_key(run: Training, root: str) -> str:
    first = run.first.key(root) if run.first else None
    recipe = run.recipe(first or "", "{root}")  # without the place of the root
    default = asdict(Recipe(recipe.model, recipe.data))
    settings = {"model": recipe.model, "data": recipe.data, **_changed(asdict(recipe), default)}
    files = asdict(run.recipe(first or "", root or "{root}"))
    return _digest(
        {
            "recipe": settings,
            "first": first,
            "data": data_fingerprint(files.pop("data"), root),
            "weights": weights_digests(files),
            "version": code_version(f"vitlab.tasks.{recipe.task}"),
        }
    )


@cache
def _work_key(work: Work, root: str) -> str:
    job = work.job
    name, settings = parse_call(job.procedure)
    module = module_of(name)
    inputs: dict[str, Any] = {"procedure": name, "settings": settings, "weights": weights_digests(settings)}
    inputs["version"] = code_version(module) or descriptions.source_digest(module)
    if job.model:
        model = _filled(job.model, "trained", root or "{root}")
        inputs["weights"] += weights_digests(model)
        inputs |= {"model": job.model, "seed": job.seed, "libraries": libraries(model)}
    else:
        inputs |= {"recipe": _recipe_run(job).key(root), "snapshot": job.snapshot}
    if job.trained:
        inputs["trained"] = [run.key(root) for run in work.needs]
    if name not in SPECIAL:  # models without declared preprocessing have that of the code
        inputs |= {"preprocessing": code_version("vitlab.preprocessing"), "contents": _read(job, module, root)}
    inputs |= {"data": job.data, "images": job.images, "repeats": job.repeats}
    return _digest(inputs)


def _read(job: Job, module: str, root: str) -> str:
    """The fingerprint of the data that a job reads; empty for that of its training run, which has its own key."""
    inputs = descriptions.card(module).get("inputs")
    if inputs == "nothing":
        return ""
    if inputs == "files":
        return files_fingerprint(module, root)
    if job.data is not None:
        return data_fingerprint(job.data, root)
    if job.recipe or job.trained:
        return ""
    data = trained_on(_filled(job.model, "trained", root or "{root}"))
    return data_fingerprint(data or "scenes", root)


def clear_key_cache() -> None:
    """Compute all keys anew: files may have changed since."""
    _training_key.cache_clear()
    _work_key.cache_clear()
    fingerprints.clear_cache()


def _named(measurement: Measurement, name: str) -> Measurement:
    about = measurement.provenance
    return replace(measurement, subject=name, provenance={**about, "model": {**about.get("model", {}), "name": name}})


def work_of(job: Job) -> Work:
    """Returns the work of a job."""
    if job.model:
        return Work(job, Training(job.trained, job.changes, job.seed) if job.trained else None)
    return Work(job, None if job.kind in _UNTRAINED else _recipe_run(job))


def all_work(jobs: Iterable[Job], root: str = "") -> tuple[list[Training], list[Work]]:
    """Returns the training runs, each after those that it needs, and the measurements; each once."""
    works = {work.key(root): work for work in map(work_of, jobs)}
    runs = {run.key(root): run for work in works.values() for run in work.needs}
    return list(runs.values()), list(works.values())


def module_of(procedure: str) -> str:
    """The module that computes a procedure.

    >>> module_of("lesion")
    'vitlab.instruments.lesion'
    """
    known = {**SPECIAL, **plugins.instruments(), **plugins.stress_tests()}
    if procedure not in known:
        raise unknown("procedure", procedure, known)
    return known[procedure]


def root_of(root: str | Path | None) -> str:
    """The folder of the data sets: the given one, else the environment variable VITLAB_DATA; empty for none."""
    return str(root or os.environ.get("VITLAB_DATA") or "")


def _recipe_run(job: Job) -> Training:
    return Training(job.recipe, job.changes, job.seed, Training(job.trained, (), job.seed) if job.trained else None)


def _filled(text: str, trained: str, root: str) -> str:
    if "{root}" in text and not root:
        raise VitlabError(f"{text} is read from the data root; set --root or the environment variable VITLAB_DATA")
    return text.replace("{trained}", trained).replace("{root}", root)


def _weights(run: Training | None, out: Path, root: str) -> str:
    return "" if run is None else str(run.folder(out, root).resolve() / "model.safetensors")


def _changed(settings: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ from the defaults, so that a new setting does not change the key of old recipes."""
    return {
        name: _changed(value, default[name]) if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if value != default[name]
    }


def _digest(inputs: Mapping[str, Any]) -> str:
    return blake2b(json.dumps(inputs, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()
