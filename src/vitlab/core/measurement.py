"""The result of an instrument: named arrays with named axes, settings and provenance."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from vitlab.core.checksum import measurement_checksum
from vitlab.core.errors import VitlabError
from vitlab.core.lock import one_writer
from vitlab.core.npz import read_npz
from vitlab.core.old_files import errors_by_name, pooling_by_kind
from vitlab.core.plain_data import plain
from vitlab.core.store import write_atomically

#: What an instrument or stress test is measured on. `vitlab measure` and `vitlab stress` prepare it accordingly.
Inputs = Literal[
    "images",  # test images; labels are not used
    "labelled images",  # test images and their labels
    "augmented training images",  # with labels, mixed as in training
    "training and test images",  # both sets with labels; the test set is the setting `test`
    "image and mask pairs",
    "questions",  # test questions about images, with answers
    "images with objects",  # test images with boxes, classes and masks of their objects
    "files",  # a folder with the files of a published set, in place of batches
    "optional images",  # generates its images; batches only give the input size and normalisation
    "nothing",  # reads the model only
]

#: How often an instrument or stress test runs over its inputs. Instruments of a `shared` pass have an `Accumulator`:
#: several of them are measured in a single pass. `one` pass, `none` and `several` are not shared.
Passes = Literal["none", "shared", "one", "several"]

_LABELLED = {*get_args(Inputs)} - {"images", "optional images", "nothing"}


@dataclass(frozen=True)
class Card:
    """Describes an instrument or stress test. A card holds literals only, so that it can be listed without an import.

    Args:
        title: what is measured, in a few words.
        paper: the figures and tables of the papers that it reproduces.
        cost: the number of forwards.
        inputs: what it is measured on.
        passes: how often it runs over its inputs, and whether it shares its pass with others.
        needs: what the model must have, for example `attention`.
        higher_is_better: None where neither direction is better.
        splittable: whether the images can be split into parts (`--repeats`); False for values that cannot be computed
            from those of the parts.
    """

    title: str
    paper: str
    cost: str
    inputs: Inputs
    passes: Passes = "several"
    needs: tuple[str, ...] = ()
    higher_is_better: bool | None = None
    splittable: bool = True

    @property
    def needs_labels(self) -> bool:
        """Whether the inputs must have labels that index the model's outputs."""
        return self.inputs in _LABELLED

    @property
    def needs_training(self) -> bool:
        """Whether the results of an untrained model are meaningless."""
        return self.needs_labels or "scenes classes" in self.needs


@dataclass(frozen=True)
class Measurement:
    """Named arrays with named axes.

    Labels, settings and provenance are converted to types that JSON can store (tuples to lists, numpy scalars to Python
    numbers, paths to text), so that a measurement equals its saved and loaded copy.

    Args:
        kind: name of the instrument.
        subject: the measured model, usually a model expression.
        values: arrays by name.
        dims: names of the axes of each value.
        axes: labels along each axis; an axis without labels is numbered.
        settings: settings of the instrument.
        provenance: versions, seed, device, data, command.
        errors: for each value that has a standard error, the name of the value that stores it.
        pooling: for each value, how results on parts of the images are combined: a rule and its input values
            (`core/pooling.py`); by default the mean over images.

    >>> found = Measurement("attention_entropy", "a", {"mean": np.zeros((2, 3))}, {"mean": ("layer", "head")})
    >>> found.values["mean"].shape
    (2, 3)
    """

    kind: str
    subject: str
    values: Mapping[str, np.ndarray]
    dims: Mapping[str, tuple[str, ...]]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    pooling: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        converted = {
            "values": {name: np.asarray(value) for name, value in self.values.items()},
            "dims": {name: tuple(dims) for name, dims in self.dims.items()},
            "axes": {name: tuple(plain(list(labels), self.kind)) for name, labels in self.axes.items()},
            "settings": plain(self.settings, f"settings of {self.kind}"),
            "provenance": plain(self.provenance, f"provenance of {self.kind}"),
            "pooling": {name: tuple(rule) for name, rule in self.pooling.items()},
        }
        for name, value in converted.items():
            object.__setattr__(self, name, value)
        self._check_axes()
        self._check_names()

    def _check_axes(self) -> None:
        for name, value in self.values.items():
            dims = self.dims.get(name, ())
            if value.dtype.hasobject:
                raise VitlabError(f"{name!r} of {self.kind} holds Python objects; expected numbers, booleans or text")
            if len(dims) != np.ndim(value):
                raise VitlabError(f"{name!r} of {self.kind} has {np.ndim(value)} axes, but dims names {dims}")
            for axis, length in zip(dims, np.shape(value), strict=True):
                if axis in self.axes and len(self.axes[axis]) != length:
                    raise VitlabError(
                        f"axis {axis!r} of {name!r} has length {length}, but {len(self.axes[axis])} labels"
                    )

    def _check_names(self) -> None:
        for name, error in self.errors.items():
            if name not in self.values or error not in self.values:
                raise VitlabError(f"errors of {self.kind} maps {name!r} to {error!r}; both must be values")
            if self.values[name].shape != self.values[error].shape:
                raise VitlabError(f"{error!r}, the error of {name!r} of {self.kind}, must have the shape of {name!r}")
        for name in self.pooling:
            if name not in self.values:
                raise VitlabError(f"{self.kind} has a pooling rule for {name!r}, but no value of this name")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Measurement) or self.values.keys() != other.values.keys():
            return False
        fields = ("kind", "subject", "dims", "axes", "settings", "provenance", "errors", "pooling")
        return all(getattr(self, name) == getattr(other, name) for name in fields) and all(
            value.dtype == other.values[name].dtype
            and np.array_equal(value, other.values[name], equal_nan=value.dtype.kind in "fc")
            for name, value in self.values.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def save(self, stem: str | Path) -> Path:
        """Write `stem.json` and `stem.npz`, each atomically, with a checksum of both; returns the path of the JSON."""
        stem = Path(stem)
        stem.parent.mkdir(parents=True, exist_ok=True)
        arrays, about = stem.with_name(stem.name + ".npz"), stem.with_name(stem.name + ".json")
        text: dict[str, Any] = {
            "kind": self.kind,
            "subject": self.subject,
            "dims": {name: list(dims) for name, dims in self.dims.items()},
            "axes": {name: list(labels) for name, labels in self.axes.items()},
            "settings": dict(self.settings),
            "provenance": dict(self.provenance),
            "errors": dict(self.errors),
            "pooling": {name: list(rule) for name, rule in self.pooling.items()},
        }
        pack, arrays_by_name = io.BytesIO(), dict[str, Any](self.values)
        np.savez_compressed(pack, **arrays_by_name)
        text["checksum"] = measurement_checksum(text, pack.getvalue())
        data = json.dumps(text, indent=1, ensure_ascii=False).encode()  # may fail, so before anything is written
        with one_writer(stem.parent):  # else two processes could leave the arrays of one and the text of the other
            with write_atomically(arrays) as file:
                file.write(pack.getvalue())
            with write_atomically(about) as file:
                file.write(data)
        return about

    @staticmethod
    def load(path: str | Path) -> Measurement:
        """Load a saved measurement from the path of the JSON file or the stem.

        Raises:
            VitlabError: if the files are missing, damaged or not a measurement.
        """
        about = Path(path)
        about = about if about.suffix == ".json" else about.with_name(about.name + ".json")
        arrays = about.with_suffix(".npz")
        try:
            text, data = json.loads(about.read_text(encoding="utf-8")), arrays.read_bytes()
            if unknown := text.keys() - _FIELDS:  # else a file whose word "checksum" is damaged would not be verified
                raise VitlabError(f"unknown field {min(unknown)!r}")
            if "checksum" in text and text["checksum"] != measurement_checksum(text, data):
                raise VitlabError("their contents do not match their checksum")
            values = read_npz(io.BytesIO(data))
            dims = {name: tuple(axes) for name, axes in text["dims"].items()}
            return Measurement(
                text["kind"],
                text["subject"],
                values,
                dims,
                {name: tuple(labels) for name, labels in text["axes"].items()},
                text["settings"],
                text["provenance"],
                text["errors"] if "errors" in text else errors_by_name({name: dims.get(name, ()) for name in values}),
                text["pooling"] if "pooling" in text else pooling_by_kind(text["kind"], values),
            )
        except UNREADABLE as error:
            reason = " ".join(str(error).split())
            raise VitlabError(
                f"{about} and {arrays.name} are not a measurement of vitlab, or are damaged ({reason}); "
                "measure again, or restore both from a copy"
            ) from error

    def _repr_html_(self) -> str:
        """The figures of the measurement, for notebooks."""
        # Imported by name: core must not depend on reporting, which is loaded only when a measurement is displayed.
        html: str = importlib.import_module("vitlab.reporting.notebook").notebook(self)
        return html


_FIELDS = {"kind", "subject", "dims", "axes", "settings", "provenance", "errors", "pooling", "checksum"}

#: Exceptions raised for missing, truncated, damaged or foreign files.
UNREADABLE = (OSError, KeyError, AttributeError, TypeError, ValueError, RecursionError)
