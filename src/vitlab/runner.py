"""Measure models by name: load them, give each what it is measured on, run instruments or stress tests, store."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from vitlab import zoo
from vitlab.core import plugins
from vitlab.core.batches import Batches
from vitlab.core.code_version import code_version
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import parse_call
from vitlab.core.measurement import Measurement
from vitlab.core.recipe import Augment, Recipe
from vitlab.core.settings import check_settings
from vitlab.core.step_cache import ReportProgress, preparing, step_cache
from vitlab.data.catalogue import check_data
from vitlab.data.folder_fingerprint import folder_fingerprint
from vitlab.identity import identify
from vitlab.inputs import Augmentation, NoTrainingImagesError, Split, parts_for
from vitlab.instruments import measure as measure_one
from vitlab.preprocessing.description import check_names
from vitlab.progress import Bar
from vitlab.recipes.deit_imagenet import deit_imagenet
from vitlab.stress_tests import stress as stress_one


@dataclass(frozen=True)
class Kind:
    """Instruments, or stress tests: what one is called, where they are, and how one is run."""

    name: str
    known: Callable[[], Mapping[str, str]]
    run: Callable[..., Measurement]


def run_all(
    kind: Kind,
    models: Sequence[str],
    names: Sequence[str],
    out: Path,
    *,
    data: str | None = None,
    root: Path | None = None,
    images: int | None = None,
    repeats: int = 1,
    device: str | None = None,
    called: Sequence[str] = (),
    preprocessing: Mapping[str, Any] | None = None,
    classes: Mapping[str, Any] | Sequence[str] | None = None,
    augment: str | None = None,
    show: bool = True,
) -> Iterator[Path]:
    """Measure each model with each instrument or stress test; measurements that the folder already holds are kept.

    An interrupted measurement resumes at its next step (`core/step_cache.py`). All settings are checked before data and
    models are opened.

    Args:
        kind: instruments or stress tests; `measure` and `stress` are this function with the one or the other.
        models: model expressions.
        names: instruments or stress tests, each perhaps with settings: `lesion(images=32)`.
        out: the folder for measurements.
        data: a data expression; by default the data that a run was trained on, else `scenes`. Its test images are used,
            and training images where the card of a test asks for them.
        root: the folder that holds the data sets, or the files that a stress test asks for.
        images: how many images of each set, by default 64, at even distances; or how many videos, where a test reads
            files of its own: all by default.
        repeats: split the images into this many disjoint parts; gives error bars.
        device: `cpu` or `cuda`; by default CUDA where there is one. Random numbers are those of the device.
        called: what to call each model in reports; by default its expression.
        preprocessing: fields of `Preprocessing` that replace the model's own.
        classes: which output each class is, where names do not tell: see `match_labels`.
        augment: augmentation of training images, for tests that use them: the name of a recipe, `weak` (crop and flip)
            or `none`; by default the one of the recipe that trained the model, else DeiT's.
        show: whether to show a progress bar.

    Yields:
        The path of each measurement, as it is ready.
    """
    if not names:
        raise VitlabError(f"no {kind.name} was named; give --with, of: {', '.join(kind.known())}")
    if images is not None and images < 1:
        raise VitlabError(f"images={images}: at least one image is needed")
    if repeats < 1 or (images is not None and repeats > images):
        raise VitlabError(f"{images or 'the'} images cannot be split into repeats={repeats} parts; ask for 1 or more")
    if called and len(called) != len(models):
        raise VitlabError(f"{len(called)} names were given for {len(models)} models; give one for each, or none")
    check_names(preprocessing or {})
    if data is not None:
        check_data(data)
    where = _device(device)
    tests = [_test(kind, text) for text in names]
    jobs = [(test, part) for test in tests for part in range(1, repeats + 1) if part == 1 or test.of_images]
    fingerprint_of = cache(partial(folder_fingerprint, besides=out))
    with Bar(len(models) * len(jobs), show=show) as bar:
        for text, name in zip(models, called or models, strict=True):
            recipe = zoo.recipe_of(text)
            source = data or (recipe.data if recipe else "scenes")
            shown = augmentation(augment, recipe)
            subject = _Subject(
                text, name, source, root, images, repeats, where, fingerprint_of, preprocessing, classes, shown
            )
            for test, part in jobs:
                with bar.piece(f"{test.name} of {text}") as report_progress, step_cache(None, report_progress):
                    path = _run_one(subject, test, part, out / _slug(text), report_progress)
                yield path


measure = partial(run_all, Kind("instrument", plugins.instruments, measure_one))
stress = partial(run_all, Kind("stress test", plugins.stress_tests, stress_one))


@dataclass(frozen=True)
class _Test:
    """One instrument or stress test with its settings, and what it is measured on.

    That is test `images`, `augmented` training images, these and test images (`both`), `files`, or `nothing`. `counts`
    is the setting, if any, that limits the number of files.
    """

    name: str
    settings: Mapping[str, Any]
    run: Callable[..., Measurement]
    takes: Literal["images", "augmented", "both", "files", "nothing"]
    counts: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    module: str = ""

    @property
    def of_images(self) -> bool:
        return self.takes in ("images", "augmented", "both")

    @property
    def stem(self) -> str:
        return f"{self.name}-{_digest(repr(self.settings))[:6]}" if self.settings else self.name


#: What a test is measured on, by what its card says that it needs; else on test images.
_INPUTS: dict[str, Any] = {"files": "files", "augmented": "augmented", "test set": "both"}


def _test(kind: Kind, text: str) -> _Test:
    name, settings = parse_call(text)
    known = kind.known()
    if name not in known:
        raise unknown(kind.name, name, known)
    module = importlib.import_module(known[name])
    if "masks" in module.CARD.needs:
        raise VitlabError(
            f"{name} needs batches of (images, masks), which this command does not make yet; from Python:"
            f" vitlab.stress({name!r}, model, batches)"
        )
    parameters = inspect.signature(module.measure).parameters
    batches = parameters.get("batches")
    looks_at_none = batches is not None and batches.default == ()
    takes: Any = next(
        (_INPUTS[need] for need in module.CARD.needs if need in _INPUTS), "nothing" if looks_at_none else "images"
    )
    if takes == "both" and "test" in settings:
        raise VitlabError(f"{name} takes its test set from --data; omit test=")
    check_settings(name, module.measure, settings)
    counts = next((key for key in ("images", "videos") if key in parameters), "") if takes == "files" else ""
    defaults = {key: item.default for key, item in list(parameters.items())[2:] if item.default is not item.empty}
    return _Test(name, settings, kind.run, takes, counts, defaults, known[name])


@dataclass(frozen=True)
class _Subject:
    """A model by its expression, and what there is to measure it on; each is loaded when it is first asked for."""

    text: str
    name: str
    data: str
    root: Path | None
    images: int | None
    repeats: int
    device: str
    fingerprint_of: Callable[[Path], str]
    preprocessing: Mapping[str, Any] | None = None
    classes: Mapping[str, Any] | Sequence[str] | None = None
    augmentation: Augmentation | None = None
    made: dict[Any, list[Batches]] = field(default_factory=dict)

    @cached_property
    def model(self) -> nn.Module:
        preparing("loading the model")
        return zoo.load(self.text, seed=0).to(self.device)

    @cached_property
    def weights(self) -> str:
        return identify(self.model).weights

    def parts(self, *, augmented: bool = False, split: Split = "test", batch_size: int = 16) -> list[Batches]:
        """The images, split into parts; those of each kind are made once."""
        key = (augmented, split, batch_size)
        if key not in self.made:
            self.made[key] = parts_for(
                self.model,
                self.data,
                self.images,
                self.repeats,
                self.root,
                batch_size,
                split=split,
                augmentation=self.augmentation if augmented else None,
                preprocessing=self.preprocessing,
                classes=self.classes,
            )
        return self.made[key]

    def training_parts(self, batch_size: int = 16) -> list[Batches]:
        """Augmented training images; test images where the data has no others."""
        try:
            return self.parts(augmented=True, split="train", batch_size=batch_size)
        except NoTrainingImagesError:
            return self.parts(augmented=True, batch_size=batch_size)

    def settings(self, test: _Test) -> dict[str, Any]:
        """Those of the test; one on files also takes the number of files and the preprocessing that the user gave."""
        asked: dict[str, Any] = {test.counts: self.images} if test.counts and self.images is not None else {}
        if test.takes == "files" and self.preprocessing:
            asked["preprocessing"] = dict(self.preprocessing)
        return {**asked, **test.settings}

    def inputs_for(self, test: _Test, part: int) -> tuple[Batches | Path | tuple[()], dict[str, Batches], str]:
        """What the test is measured on, what it gets beside that, and the fingerprint of both."""
        if test.takes == "nothing":
            return (), {}, "nothing"
        if test.takes == "files":
            folder = _folder(test.name, self.root)
            return folder, {}, f"files in {folder.resolve()} {self.fingerprint_of(folder)}"
        if test.takes == "augmented":
            shown = self.training_parts(test.settings.get("batch_size", 16))[part - 1]
            return shown, {}, _identity(shown)
        tested = self.parts()[part - 1]
        if test.takes == "images":
            return tested, {}, _identity(tested)
        trained = self.training_parts()[part - 1] if self.augmentation else self.parts(split="train")[part - 1]
        return trained, {"test": tested}, f"{_identity(trained)}; {_identity(tested)}"


def augmentation(name: str | None, recipe: Recipe | None) -> Augmentation | None:
    """The augmentation of training images: by name, else that of the recipe that trained the model, else DeiT's.

    >>> augmentation("weak", None).settings.mixup, augmentation("none", None), augmentation(None, None).smoothing
    (0.0, None, 0.1)
    """
    if name == "none":
        return None
    if name == "weak":
        small = recipe is not None and max(recipe.image_size) <= 64
        return Augmentation(Augment(crop="pad" if small else "resized"), 0.0, "weak")
    if name is not None:
        named = plugins.recipe(name)
        return Augmentation(named.augment, named.objective.smoothing, name)
    if recipe is not None:
        return Augmentation(recipe.augment, recipe.objective.smoothing, "the recipe that trained the model")
    standard = deit_imagenet()
    return Augmentation(standard.augment, standard.objective.smoothing, "deit_imagenet (default)")


def _identity(batches: Batches) -> str:
    """What a measurement depends on: the images, how they were prepared, and their labels."""
    about = json.dumps({"preprocessing": batches.preprocessing, "labels": batches.labels}, sort_keys=True, default=str)
    return f"{batches.fingerprint} {about}"


def _run_one(subject: _Subject, test: _Test, part: int, folder: Path, report_progress: ReportProgress) -> Path:
    """The path of the measurement, which is made unless it is there; its finished steps lie beside it until then."""
    inputs_for, beside, fingerprint = subject.inputs_for(test, part)
    settings = subject.settings(test)
    resolved = repr(sorted({**test.defaults, **settings}.items()))
    version = code_version(test.module)
    identity = _digest(subject.text, subject.weights, subject.device, test.name, resolved, fingerprint, version)
    repeated = subject.repeats > 1 and test.of_images
    stem = folder / (f"{test.stem}.part{part}of{subject.repeats}" if repeated else test.stem)
    steps = stem.with_name(f"{stem.name}.{identity}.steps")
    if not _has(stem, identity):
        with step_cache(steps, report_progress):
            found = test.run(test.name, subject.model, inputs_for, name=subject.name, **beside, **settings)
        about = {**found.provenance, "identity": identity, **({"part": [part, subject.repeats]} if repeated else {})}
        replace(found, settings={**settings, **found.settings}, provenance=about).save(stem)
    else:
        _rename(stem, subject.name)
    shutil.rmtree(steps, ignore_errors=True)
    return stem.with_name(f"{stem.name}.json")


def _device(name: str | None) -> str:
    there = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    if name is not None and name not in there:
        raise VitlabError(f"there is no device {name!r} here; expected {' or '.join(there)}")
    return name or there[-1]


def _folder(name: str, root: Path | None) -> Path:
    """The folder with the files that a test is made of."""
    given = root or os.environ.get("VITLAB_DATA")
    if not given:
        raise VitlabError(f"{name} is measured on files of its own; give --root, the folder that holds them")
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise VitlabError(f"{name} is measured on files of its own, but there is no folder {folder}; correct --root")
    return folder


def _has(stem: Path, identity: str) -> bool:
    """Whether a measurement of the same weights, settings and data is already there."""
    try:
        return Measurement.load(stem).provenance.get("identity") == identity
    except VitlabError:
        return False


def _rename(stem: Path, name: str) -> None:
    """Give a stored measurement the name that the model has now."""
    found = Measurement.load(stem)
    if found.subject != name:
        model = {**found.provenance.get("model", {}), "name": name}
        replace(found, subject=name, provenance={**found.provenance, "model": model}).save(stem)


def _digest(*parts: str | bytes) -> str:
    digest = blake2b(digest_size=8)
    for part in parts:
        block = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(block)}:".encode())
        digest.update(block)
    return digest.hexdigest()


def _slug(text: str) -> str:
    """A model expression as the name of a folder, which no other expression has."""
    words = re.sub(r"[^\w.-]+", "_", text).strip("_")[:80]
    return f"{words}-{_digest(text)[:6]}"
