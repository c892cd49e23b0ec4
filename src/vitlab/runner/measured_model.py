"""A model given by its expression, and the inputs of each instrument and stress test that measures it."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from torch import nn

from vitlab import zoo
from vitlab.adapters import token_kinds
from vitlab.adapters.wrappers import unwrap
from vitlab.core import descriptions, plugins
from vitlab.core.batches import Batches
from vitlab.core.code_version import code_version
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_call
from vitlab.core.extensions import extensions
from vitlab.core.measurement import Card
from vitlab.core.recipe import Augment, Recipe
from vitlab.core.settings import check_settings
from vitlab.core.step_cache import preparing
from vitlab.core.user_path import user_path
from vitlab.identity import identify, structure_digest
from vitlab.inputs import Augmentation, NoTrainingImagesError, Split, augmentation_of, parts_for
from vitlab.inputs.detection import detection_parts
from vitlab.inputs.pairs import conditions_of, pair_parts
from vitlab.inputs.questions import question_parts
from vitlab.preprocessing import declared
from vitlab.recipes.deit_imagenet import deit_imagenet


@dataclass(frozen=True)
class Procedure:
    """An instrument or a stress test with its settings.

    Args:
        name: of the instrument or stress test.
        settings: those that the user gave.
        card: of the instrument or stress test.
        defaults: the default settings.
        module: the module that defines it.
    """

    name: str
    settings: Mapping[str, Any]
    card: Card
    defaults: Mapping[str, Any] = field(default_factory=dict)
    module: str = ""

    @property
    def uses_images(self) -> bool:
        """Whether the images of a data set are measured, so that `repeats` splits them."""
        return self.card.inputs not in ("files", "optional images", "nothing", "questions")

    @property
    def shares_pass(self) -> bool:
        """Whether it is measured in a single pass with others: `measure_together` takes default settings only."""
        return self.card.passes == "shared" and not self.settings

    @property
    def limit(self) -> str:
        """The setting that limits the number of files; empty where there is none."""
        known = [key for key in ("images", "videos") if key in self.defaults]
        return known[0] if known and self.card.inputs == "files" else ""

    @property
    def stem(self) -> str:
        """The name of its files: other settings have another name."""
        return f"{self.name}-{digest(repr(self.settings))[:6]}" if self.settings else self.name


def procedure(kind: str, text: str, known: Mapping[str, str]) -> Procedure:
    """Parse a name, perhaps with settings, and check the settings.

    Args:
        kind: `instrument` or `stress test`, for errors.
        text: for example `lesion(images=32)`.
        known: modules by name.
    """
    name, settings = parse_call(text)
    name, module = plugins.procedure(kind, name, dict(known))
    if module.CARD.inputs == "training and test images" and "test" in settings:
        raise VitlabError(f"{name} takes its test set from --data; omit test=")
    check_settings(name, module.measure, settings)
    parameters = list(inspect.signature(module.measure).parameters.items())[2:]
    defaults = {key: item.default for key, item in parameters if item.default is not item.empty}
    return Procedure(name, settings, module.CARD, defaults, known[name])


@dataclass(frozen=True)
class MeasuredModel:
    """A model by its expression, and its inputs. Both are loaded on first use.

    Args:
        text: the model expression.
        name: the name of the model in reports.
        data: a data expression.
        root: the folder of the data sets, or of the files of a stress test.
        images: the number of images; None for the default.
        repeats: the number of disjoint parts of the images.
        device: where the model runs.
        fingerprint_of: computes the fingerprint of a folder.
        preprocessing: fields that replace the model's own.
        classes: see `match_labels`.
        augmentation: of training images; None for none.
        seed: of random weights.
        dense: whether the data has label maps, because the model was trained on them.
    """

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
    seed: int = 0
    dense: bool = False
    _parts: dict[Any, list[Batches]] = field(default_factory=dict)

    @cached_property
    def model(self) -> nn.Module:
        """The model, on its device."""
        preparing("loading the model")
        return zoo.load(self.text, seed=self.seed).to(self.device)

    @cached_property
    def contents(self) -> str:
        """A digest of its weights, its settings, and the code of the extensions that it uses or may be described by."""
        about = identify(self.model)
        used = [
            each for kind in ("models", "parts") for each in extensions(kind).values() if each.name in about.extensions
        ]
        code = [descriptions.source_digest(each.reference) for each in [*used, *extensions("adapters").values()]]
        return digest(about.weights, structure_digest(self.model), *code)

    @cached_property
    def takes_questions(self) -> bool:
        """Whether the model answers questions about images."""
        return token_kinds(self.model) is not None

    def questions(self, *, same_length: bool) -> list[Batches]:
        """Questions with their images: those of one length in `repeats` disjoint parts, or all."""
        data = "scene_questions" if self.data == "scenes" else self.data  # the default of models that were not trained
        size = (self.preprocessing or {}).get("size")
        repeats = self.repeats if same_length else 1
        settings: dict[str, Any] = {"size": size, "same_length": same_length}
        return question_parts(unwrap(self.model), data, self.images, repeats, self.root, **settings)

    def parts(self, *, augmented: bool = False, split: Split = "test", batch_size: int = 16) -> list[Batches]:
        """The images in `repeats` disjoint parts, cached."""
        if self.dense:
            if augmented or split == "train":
                raise VitlabError(f"{self.data!r} has label maps; training images with one label each are needed")
            return self.pairs(masks=False)
        key = (augmented, split, batch_size)
        if key not in self._parts:
            self._parts[key] = parts_for(
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
        return self._parts[key]

    def pairs(self, *, masks: bool) -> list[Batches]:
        """The images in `repeats` disjoint parts, with label maps or without labels, cached."""
        key = ("pairs", masks)
        if key not in self._parts:
            given = (self.data, self.images, self.repeats, self.root)
            self._parts[key] = pair_parts(self.model, *given, masks=masks, preprocessing=self.preprocessing)
        return self._parts[key]

    def annotated(self) -> list[Batches]:
        """The images with their objects in `repeats` disjoint parts, cached."""
        key = ("annotated",)
        if key not in self._parts:
            given = (self.data, self.images, self.repeats, self.root)
            self._parts[key] = detection_parts(self.model, *given, preprocessing=self.preprocessing)
        return self._parts[key]

    def training_parts(self, batch_size: int = 16) -> list[Batches]:
        """Augmented training images; augmented test images where the data has no training set."""
        try:
            return self.parts(augmented=True, split="train", batch_size=batch_size)
        except NoTrainingImagesError:
            return self.parts(augmented=True, batch_size=batch_size)

    def settings(self, procedure: Procedure) -> dict[str, Any]:
        """The settings of a procedure; one on files also gets the number of files and the given preprocessing."""
        given: dict[str, Any] = {}
        if procedure.limit and self.images is not None:
            given[procedure.limit] = self.images
        if procedure.card.inputs == "files" and self.preprocessing:
            given["preprocessing"] = dict(self.preprocessing)
        return {**given, **procedure.settings}

    def inputs_for(self, procedure: Procedure, part: int) -> tuple[Any, dict[str, Batches], str]:
        """The inputs of a procedure, inputs that it takes as settings, and the fingerprint of both."""
        kind = procedure.card.inputs
        if kind == "nothing":
            return (), {}, "nothing"
        if kind == "files":
            folder = _folder(procedure.name, self.root)
            return folder, {}, f"files in {folder.resolve()} {self.fingerprint_of(folder)} {declared(self.model)}"
        if self.takes_questions or kind == "questions":
            return self._questions_for(procedure, part)
        if kind == "image and mask pairs":
            return self._with_masks(procedure, part)
        if kind == "images with objects":
            annotated = self.annotated()[part - 1]
            return annotated, {}, _fingerprint(annotated)
        if kind == "augmented training images":
            augmented = self.training_parts(procedure.settings.get("batch_size", 16))[part - 1]
            return augmented, {}, _fingerprint(augmented)
        tested = self.parts()[part - 1]
        if kind != "training and test images":
            return tested, {}, _fingerprint(tested)
        trained = self.training_parts()[part - 1] if self.augmentation else self.parts(split="train")[part - 1]
        return trained, {"test": tested}, f"{_fingerprint(trained)}; {_fingerprint(tested)}"

    def _questions_for(self, procedure: Procedure, part: int) -> tuple[Batches, dict[str, Batches], str]:
        """The questions for a procedure; an error if the model or the procedure does not take them."""
        kind = procedure.card.inputs
        if not self.takes_questions:
            raise VitlabError(f"{procedure.name} needs a model that answers questions; {self.text} takes images only")
        if kind != "questions" and procedure.card.passes != "shared":
            raise VitlabError(
                f"{procedure.name} takes images only, and {self.text} answers questions about images; use an "
                "instrument of one pass, such as attention_entropy or question_answers"
            )
        asked = self.questions(same_length=kind != "questions")[part - 1]
        return asked, {}, _fingerprint(asked)

    def _with_masks(self, procedure: Procedure, part: int) -> tuple[Any, dict[str, Batches], str]:
        if procedure.settings.get("suite") == "by_condition":
            sets = conditions_of(self.model, self.data, self.images, self.root, self.preprocessing)
            return sets, {}, "; ".join(map(_fingerprint, sets.values()))
        masked = self.pairs(masks=True)[part - 1]
        return masked, {}, _fingerprint(masked)

    def identity(self, procedure: Procedure, fingerprint: str) -> str:
        """Digest of all that a measurement depends on; a stored one with this identity is used again."""
        resolved = repr(sorted({**procedure.defaults, **self.settings(procedure)}.items()))
        version = code_version(procedure.module) or descriptions.source_digest(procedure.module)
        return digest(self.text, self.contents, self.device, procedure.name, resolved, fingerprint, version)


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
        return augmentation_of(name)
    if recipe is not None:
        return Augmentation(recipe.augment, recipe.objective.smoothing, "the recipe that trained the model")
    standard = deit_imagenet()
    return Augmentation(standard.augment, standard.objective.smoothing, "deit_imagenet (default)")


def _fingerprint(batches: Batches) -> str:
    """Identifies the images, their preprocessing and their labels."""
    known = {"preprocessing": batches.preprocessing, "labels": batches.labels, "outputs": list(batches.outputs)}
    about = json.dumps(known, sort_keys=True, default=str)
    return f"{batches.fingerprint} {about}"


def _folder(name: str, root: Path | None) -> Path:
    """The folder with the files of a stress test."""
    given = root or os.environ.get("VITLAB_DATA")
    if not given:
        raise VitlabError(f"{name} reads files of its own; give --root, their folder")
    folder = user_path(given)
    if not folder.is_dir():
        raise VitlabError(f"{name} reads files of its own, but there is no folder {folder}; correct --root")
    return folder


def digest(*parts: str | bytes) -> str:
    """A hex digest of some texts; the lengths enter too, so that no two lists of texts collide."""
    combined = blake2b(digest_size=8)
    for part in parts:
        block = part.encode() if isinstance(part, str) else part
        combined.update(f"{len(block)}:".encode())
        combined.update(block)
    return combined.hexdigest()
