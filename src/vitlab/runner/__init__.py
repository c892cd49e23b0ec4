"""Measure models by name: load them, prepare their inputs, run instruments or stress tests, store the measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any

from vitlab import zoo
from vitlab.core import plugins
from vitlab.core.annotations import shown
from vitlab.core.bounds import ImageCount, Seed
from vitlab.core.errors import ExtensionError, VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.out_folder import check_writable
from vitlab.core.settings import check_settings, check_value
from vitlab.core.step_cache import step_cache
from vitlab.data.file_fingerprints import folder_fingerprint
from vitlab.inputs.pairs import check_source, only_pairs
from vitlab.instruments import measure as measure_one
from vitlab.instruments import measure_together
from vitlab.preprocessing.description import check_names
from vitlab.progress import Bar
from vitlab.runner.jobs import Job, Kind, folder_of, plan_jobs, run_job
from vitlab.runner.measured_model import MeasuredModel, Procedure, augmentation, procedure
from vitlab.stress_tests import stress as stress_one
from vitlab.training.device import choose_device

__all__ = [
    "INSTRUMENTS",
    "STRESS_TESTS",
    "Kind",
    "measure",
    "measure_models",
    "prepare",
    "run_all",
    "stress",
    "stress_models",
]


def run_all(
    kind: Kind,
    models: Sequence[str],
    names: Sequence[str],
    out: Path,
    *,
    data: str | None = None,
    root: str | Path | None = None,
    images: ImageCount | None = None,
    repeats: int = 1,
    device: str | None = None,
    called: Sequence[str] = (),
    preprocessing: Mapping[str, Any] | None = None,
    classes: Mapping[str, Any] | Sequence[str] | None = None,
    augment: str | None = None,
    seed: Seed = 0,
    show: bool = True,
    bar: Bar | None = None,
) -> Iterator[Path]:
    """Measure each model with each instrument or stress test and store the measurements.

    Measurements that the folder already holds are not repeated. An interrupted measurement resumes at its next step
    (`core/step_cache.py`). Instruments of a shared pass, at default settings, are measured in a single pass over the
    images. All settings are checked before data and models are loaded. If code of an extension fails, the others are
    measured, and the error is raised at the end.

    Args:
        kind: instruments or stress tests; `measure` and `stress` are this function with `kind` bound.
        models: model expressions.
        names: instruments or stress tests, optionally with settings: `lesion(images=32)`.
        out: the folder for measurements.
        data: a data expression; by default the data of the training run, else `scenes`. The card of an instrument or
            stress test decides whether test images, training images or both are used.
        root: the folder of the data sets, or of the files of a stress test.
        images: number of images of each set, chosen at even distances; default 64. For tests on files the number of
            images or videos, and for data with label maps the number of images; default all.
        repeats: split the images into this many disjoint parts; gives error bars.
        device: `cpu`, `cuda` or `mps`; by default CUDA where available. Random numbers depend on the device.
        called: display names of the models in reports; by default their expressions.
        preprocessing: fields of `Preprocessing` that replace the model's own.
        classes: the output of each class, where names do not match: see `match_labels`.
        augment: augmentation of training images: the name of a recipe, `weak` (crop and flip) or `none`; by default
            that of the recipe that trained the model, else DeiT's.
        seed: of random weights.
        show: whether to show a progress bar.
        bar: an open progress bar to use instead of a new one.

    Yields:
        The path of each measurement when it is stored.
    """
    options: dict[str, Any] = {
        "data": data,
        "root": None if root is None else Path(root),
        "images": images,
        "repeats": repeats,
        "device": device,
    }
    options |= {"called": called, "preprocessing": preprocessing, "classes": classes, "augment": augment, "seed": seed}
    opened, jobs = prepare(kind, models, names, out, **options)
    total = len(opened) * sum(len(job.procedures) for job in jobs)
    failures: list[ExtensionError] = []
    with nullcontext(bar) if bar is not None else Bar(total, show=show) as progress:
        while opened:
            model = opened.pop(0)  # a model is released after its last measurement
            for job in jobs:
                with (
                    progress.piece(f"{job.title} of {model.name}", len(job.procedures)) as report_progress,
                    step_cache(None, report_progress),
                ):
                    paths, failed = run_job(kind, model, job, folder_of(model.text, out), report_progress)
                failures += failed
                yield from paths
    if failures:
        lines = dict.fromkeys(map(str, failures))  # the same line for several models is printed once
        raise ExtensionError("; ".join(lines), failures)


def prepare(
    kind: Kind,
    models: Sequence[str],
    names: Sequence[str],
    out: Path,
    *,
    data: str | None,
    root: Path | None,
    images: int | None,
    repeats: int,
    device: str | None,
    called: Sequence[str],
    preprocessing: Mapping[str, Any] | None,
    classes: Mapping[str, Any] | Sequence[str] | None,
    augment: str | None,
    seed: int,
) -> tuple[list[MeasuredModel], list[Job]]:
    """Check all arguments of `run_all`; returns the models, which are loaded on first use, and the work on each."""
    _check(kind, models, names, images, repeats, called)
    check_writable(out)
    check_names(preprocessing or {})
    if data is not None:
        check_source(data)
    where = choose_device(device)
    procedures = [procedure(kind.name, text, kind.known()) for text in names]
    _check_repeats(procedures, repeats)
    jobs = plan_jobs(procedures, repeats, kind)
    fingerprint_of = cache(partial(folder_fingerprint, besides=out, times=True))
    opened = []
    for text, name in zip(models, called or models, strict=True):
        recipe = zoo.recipe_of(text)
        source = data or (recipe.data if recipe else "scenes")
        model = MeasuredModel(
            text,
            name,
            source,
            root,
            images,
            repeats,
            where,
            fingerprint_of,
            preprocessing,
            classes,
            augmentation(augment, recipe),
            seed,
            dense=only_pairs(source) or (recipe is not None and recipe.task == "segmentation"),
        )
        opened.append(model)
    return opened, jobs


_MOST_REPEATS = 10_000  # each is a pass of its own, with files of its own

INSTRUMENTS = Kind("instrument", plugins.instruments, measure_one, measure_together)
STRESS_TESTS = Kind("stress test", plugins.stress_tests, stress_one)
measure = partial(run_all, INSTRUMENTS)
stress = partial(run_all, STRESS_TESTS)


def measure_models(
    models: Sequence[str], instruments: Sequence[str], out: str | Path, **options: Any
) -> list[Measurement]:
    """Measure models by expression with instruments, as the command `vitlab measure`.

    Measurements that the folder already holds are read instead of made again.

    Args:
        models: model expressions.
        instruments: names, optionally with settings: `lesion(images=32)`.
        out: the folder for measurements.
        options: keyword arguments of `run_all`, for example `data`, `images`, `device`, `repeats` or `called`.

    Returns:
        The measurements, by model and in the order of the instruments.
    """
    return _measurements("measure_models", measure, models, instruments, out, options)


def stress_models(
    models: Sequence[str], stress_tests: Sequence[str], out: str | Path, **options: Any
) -> list[Measurement]:
    """Run stress tests on models by expression, as the command `vitlab stress`; arguments as in `measure_models`."""
    return _measurements("stress_models", stress, models, stress_tests, out, options)


def _measurements(
    name: str,
    run: Callable[..., Iterator[Path]],
    models: Sequence[str],
    names: Sequence[str],
    out: str | Path,
    options: Mapping[str, Any],
) -> list[Measurement]:
    for what, given in (("models", models), ("names", names)):
        check_value(name, what, given, Sequence[str])
    check_value(name, "out", out, str | Path)
    options = check_settings(name, run_all, options, skip=4)
    return [Measurement.load(path) for path in run(models, names, Path(out), **options)]


def _check(
    kind: Kind, models: Sequence[str], names: Sequence[str], images: int | None, repeats: int, called: Sequence[str]
) -> None:
    if not names:
        raise VitlabError(f"no {kind.name} was named; give --with, of: {', '.join(kind.known())}")
    if images is not None and images < 1:
        raise VitlabError(f"invalid images={images}; expected 1 or more")
    most = _MOST_REPEATS if images is None else min(images, _MOST_REPEATS)
    if not 1 <= repeats <= most:
        number = ", the number of images" if most == images else ""
        raise VitlabError(f"invalid repeats={shown(repeats)}; expected 1 to {most:,}{number}")
    if called and len(called) != len(models):
        raise VitlabError(f"{len(called)} names were given for {len(models)} models; give one for each, or none")


def _check_repeats(procedures: Sequence[Procedure], repeats: int) -> None:
    whole = [each.name for each in procedures if not each.card.splittable]
    if repeats > 1 and whole:
        raise VitlabError(
            f"invalid repeats={repeats} with {', '.join(whole)}, which is not a mean over images; omit --repeats"
        )
