"""The explorer's attention view inside a report: HTML that works without a server."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from itertools import count
from typing import Any

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Fragment

#: The reason shown for a layer with numbers that are not finite.
NOT_FINITE = "its attention has values that are not finite"

#: The scripts of the view, in the order in which they run.
SCRIPTS = (
    "attention_drawing.js",
    "attention_predictions.js",
    "attention_panel.js",
    "attention_view.js",
    "attention_stored.js",
)

_NUMBERS = count(1)  # a page may have several views


def draw(measurements: Sequence[Measurement]) -> list[Fragment]:
    """One fragment with style, data and scripts; every string of the data is escaped.

    The scripts are files of `templates/`, unchanged, so that the content security policy of a page can allow them by
    their hashes. The fragment has about a megabyte for two images of a DeiT-Ti.

    Args:
        measurements: of kind `attention_view`, one per model, with the same lattice; two are shown side by side.
    """
    lattices = {int(measurement.settings["lattice"]) for measurement in measurements}
    if len(lattices) != 1:
        raise VitlabError(
            f"invalid lattice={sorted(lattices)}; expected one lattice for all models; measure all with the same one"
        )
    lattice = lattices.pop()
    name = f"attention-view-{next(_NUMBERS)}"
    data: dict[str, Any] = {
        "grid": [lattice, lattice],
        "models": [_model(measurement, lattice) for measurement in measurements],
    }
    scripts = "".join(f"<script>{_template(name)}</script>\n" for name in SCRIPTS)
    unknown = [model["name"] for model in data["models"] if not all(each["predictions"] for each in model["images"])]
    note = f"<p>Predictions that are not finite are omitted: {escape(', '.join(unknown))}.</p>\n" if unknown else ""
    html = (
        f"<style>{_template('attention_view.css')}</style>\n"
        f"{note}"
        f'<div data-attention-view="{name}"></div>\n'
        f'<script type="application/json" id="{name}">{_escaped(data)}</script>\n'
        f"{scripts}"
    )
    return [Fragment(html)]


def _model(measurement: Measurement, lattice: int) -> dict[str, Any]:
    layers = list(measurement.axes["layer"])
    images = range(len(measurement.values["pictures"]))
    return {
        "name": measurement.subject,
        "images": [
            {
                "label": str(measurement.values["label"][image]) or None,
                "picture": _picture(measurement.values["pictures"][image]),
                "predictions": _ranked(measurement.values["class"][image], measurement.values["probability"][image])
                or [],
                "layers": [_layer(measurement, image, index, name, lattice) for index, name in enumerate(layers)],
            }
            for image in images
        ],
    }


def _picture(pixels: np.ndarray) -> dict[str, Any]:
    return {"height": pixels.shape[0], "width": pixels.shape[1], "rgb": _base64(pixels)}


def _ranked(names: np.ndarray, probabilities: np.ndarray) -> list[dict[str, Any]] | None:
    if not np.isfinite(probabilities).all():
        return None
    pairs = zip(names.tolist(), probabilities.tolist(), strict=True)
    return [{"name": name, "probability": round(probability, 6)} for name, probability in pairs]


def _layer(measurement: Measurement, image: int, index: int, name: str, lattice: int) -> dict[str, Any]:
    values = measurement.values
    about: dict[str, Any] = {
        "name": name,
        "kind": str(values["kind"][index]),
        "why": str(values["why"][index]),
        "why_no_lens": str(values["why no lens"][index]),
        "lens": _ranked(values["lens class"][image, index], values["lens probability"][image, index]),
        "heads": 0,
    }
    known = float(values["lens information"][image, index]) if "lens information" in values else float("nan")
    if np.isfinite(known):
        about["information"] = round(known, 4)
    if f"maps of {name}" not in values:
        return about
    if not _finite(measurement, name, image, index):
        return about | {"why": NOT_FINITE}
    maps, entropy = (values[f"{what} of {name}"][image] for what in ("maps", "entropy"))
    heads, queries, _ = maps.shape
    own = queries if queries < lattice * lattice else queries - lattice * lattice
    stored: dict[str, Any] = {"maps": _base64(maps), "peaks": _rounded(values[f"peak of {name}"][image])}
    stored |= {"prefix": _rounded(values[f"prefix of {name}"][image]), "entropy": _rounded(entropy)}
    return about | {
        "heads": heads,
        "grid": values["grid"][index].tolist(),
        "queries": own,
        "bound": float(values["bound"][index]),
        "entropy": _rounded(entropy.mean(1)),
        "stored": stored,
    }


def _finite(measurement: Measurement, name: str, image: int, index: int) -> bool:
    """Whether all numbers of a layer are finite: JSON has no others, and an incomplete map is misleading."""
    numbers = [measurement.values[f"{what} of {name}"][image] for what in ("peak", "prefix", "entropy")]
    return all(bool(np.isfinite(each).all()) for each in (*numbers, measurement.values["bound"][index]))


def _rounded(values: np.ndarray) -> list[Any]:
    rounded: list[Any] = values.astype(float).round(4).tolist()
    return rounded


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.uint8).tobytes()).decode()


def _escaped(data: dict[str, Any]) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _template(name: str) -> str:
    return (files("vitlab.reporting") / "templates" / name).read_text(encoding="utf-8")
