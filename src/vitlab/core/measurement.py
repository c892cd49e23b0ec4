"""What an instrument found, as plain data: named arrays with named axes, and where they came from."""

from __future__ import annotations

import importlib
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.store import write_atomically


@dataclass(frozen=True)
class Card:
    """What an instrument says about itself.

    Args:
        title: what it measures, in a few words.
        paper: the figures and tables it stands for.
        cost: what it costs, in forwards.
        needs: what it takes, of a model (`attention`) or of the data (`labels`). Three words tell `vitlab measure` what
            to feed it: `augmented` images, a `test set` beside training images, `files` instead of images.
        higher_is_better: None where neither is.
    """

    title: str
    paper: str
    cost: str
    needs: tuple[str, ...] = ()
    higher_is_better: bool | None = None


@dataclass(frozen=True)
class Measurement:
    """Named arrays with named axes.

    Args:
        kind: the instrument's name.
        subject: what was measured, usually a model expression.
        values: arrays by name.
        dims: for each value, the names of its axes, as many as the array has.
        axes: for each axis, the labels along it; an axis without labels is numbered.
        settings: what the instrument was told.
        provenance: versions, seed, device, data, command.

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

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            dims = self.dims.get(name, ())
            if np.asarray(value).dtype.hasobject:
                raise VitlabError(f"{name!r} of {self.kind} holds Python objects; give numbers, truth values or text")
            if len(dims) != np.ndim(value):
                raise VitlabError(f"{name!r} of {self.kind} has {np.ndim(value)} axes but is said to have {dims}")
            for axis, length in zip(dims, np.shape(value), strict=True):
                if axis in self.axes and len(self.axes[axis]) != length:
                    raise VitlabError(
                        f"axis {axis!r} of {name!r} has {length} places but {len(self.axes[axis])} labels"
                    )

    def save(self, stem: str | Path) -> Path:
        """Write `stem.json` and `stem.npz`, each whole or not at all; returns the path of the JSON."""
        stem = Path(stem)
        stem.parent.mkdir(parents=True, exist_ok=True)
        arrays, about = stem.with_name(stem.name + ".npz"), stem.with_name(stem.name + ".json")
        text = {
            "kind": self.kind,
            "subject": self.subject,
            "dims": {name: list(dims) for name, dims in self.dims.items()},
            "axes": {name: list(labels) for name, labels in self.axes.items()},
            "settings": dict(self.settings),
            "provenance": dict(self.provenance),
        }
        data = json.dumps(text, indent=1, ensure_ascii=False).encode()  # before anything is written: it may fail
        with write_atomically(arrays) as file:
            arrays_by_name: dict[str, Any] = {name: np.asarray(value) for name, value in self.values.items()}
            np.savez_compressed(file, **arrays_by_name)
        with write_atomically(about) as file:
            file.write(data)
        return about

    @staticmethod
    def load(path: str | Path) -> Measurement:
        """Read what `save` wrote, from the path of the JSON or the stem."""
        about = Path(path)
        about = about if about.suffix == ".json" else about.with_name(about.name + ".json")
        arrays = about.with_suffix(".npz")
        try:
            text = json.loads(about.read_text(encoding="utf-8"))
            with np.load(arrays, allow_pickle=False) as pack:
                values = {name: pack[name] for name in pack.files}
            return Measurement(
                text["kind"],
                text["subject"],
                values,
                {name: tuple(dims) for name, dims in text["dims"].items()},
                {name: tuple(labels) for name, labels in text["axes"].items()},
                text["settings"],
                text["provenance"],
            )
        except _UNREADABLE as error:
            reason = " ".join(str(error).split())
            raise VitlabError(f"{about} and {arrays.name} are no measurement of vitlab: {reason}") from error

    def _repr_html_(self) -> str:
        """Its figures, where it is the last expression of a notebook's cell."""
        # By name: core knows nothing of reporting, which is not loaded before something is shown.
        shown: str = importlib.import_module("vitlab.reporting.page").notebook(self)
        return shown


#: What files that are missing, cut, damaged or of somebody else raise.
_UNREADABLE = (OSError, EOFError, KeyError, AttributeError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)
