"""What `vitlab measure` and `vitlab stress` print of a stored measurement."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from vitlab.core.measurement import Measurement
from vitlab.identity import ModelIdentity
from vitlab.reporting.sections import is_part

__all__ = ["measured", "model_of", "shortfall"]

_SMALL = 100  # elements of an array that is printed


def measured(path: Path) -> dict[str, Any]:
    """A summary of a stored measurement: its path, kind, subject, number of images and values.

    `values` holds scalars, `arrays` arrays of at most 100 elements with the labels of their axes. `partial` is present
    where the size of the full benchmark is known.
    """
    stored = Measurement.load(path)
    values = {name: value.item() for name, value in stored.values.items() if not value.ndim}
    arrays = {
        name: {"axes": {axis: list(stored.axes.get(axis, ())) for axis in stored.dims[name]}, "values": value.tolist()}
        for name, value in stored.values.items()
        if value.ndim and value.size <= _SMALL
    }
    about = {key: stored.provenance[key] for key in ("model", "images", "partial") if key in stored.provenance}
    head = {"path": str(path), "kind": stored.kind, "subject": stored.subject}
    return {**head, **about, "values": values, "arrays": arrays}


def model_of(path: Path) -> str:
    """One line on the model of a stored measurement: its name, the origin of its weights, its parts."""
    model = Measurement.load(path).provenance.get("model", {})
    known = {field.name for field in fields(ModelIdentity)} - {"extensions"} == set(model)
    return str(ModelIdentity(**model)) if known else ""


def shortfall(path: Path) -> str:
    """One line on a measurement of only a part of a benchmark; empty where it is complete or has no official size."""
    stored = Measurement.load(path)
    if not is_part(stored):
        return ""
    images, full = stored.provenance.get("images", 0), stored.provenance.get("official_images", 0)
    what = f"{images:,} images, not the full {full:,}" if images < full else "a part of the benchmark only"
    return f"{stored.kind} of {stored.subject}: on {what}"
