"""The explorer's view inside a report: measurements of `attention_view` as a fragment of HTML, without a server."""

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

#: Said where a layer cannot be shown.
NOT_FINITE = "its attention holds numbers that are not finite"

_NUMBERS = count(1)  # several views may stand on one page


def render(measurements: Sequence[Measurement]) -> str:
    """A fragment to put into a page as it is: style, place, data and script, every string of the data escaped.

    The script is `templates/attention_view.js` to the letter, so that a page can allow it by its hash.

    Args:
        measurements: of kind `attention_view`, one for each model, with the same lattice; two are shown side by side.

    Returns:
        HTML, about a megabyte for two images of a DeiT-Ti.
    """
    lattices = {int(measurement.settings["lattice"]) for measurement in measurements}
    if len(lattices) != 1:
        raise VitlabError(f"views are compared patch by patch: measure all with one lattice, not {sorted(lattices)}")
    lattice = lattices.pop()
    name = f"attention-view-{next(_NUMBERS)}"
    data: dict[str, Any] = {
        "grid": [lattice, lattice],
        "models": [_model(measurement, lattice) for measurement in measurements],
    }
    style, script = (_template(f"attention_view.{kind}") for kind in ("css", "js"))
    unknown = [model["name"] for model in data["models"] if not all(each["predictions"] for each in model["images"])]
    note = f"<p>Predictions that are not finite are left out: {escape(', '.join(unknown))}.</p>\n" if unknown else ""
    return (
        f"<style>{style}</style>\n"
        f"{note}"
        f'<div data-attention-view="{name}"></div>\n'
        f'<script type="application/json" id="{name}">{_escaped(data)}</script>\n'
        f"<script>{script}</script>\n"
    )


def _model(found: Measurement, lattice: int) -> dict[str, Any]:
    layers = list(found.axes["layer"])
    images = range(len(found.values["pictures"]))
    return {
        "name": found.subject,
        "images": [
            {
                "label": str(found.values["label"][image]) or None,
                "picture": _picture(found.values["pictures"][image]),
                "predictions": _ranked(found.values["class"][image], found.values["probability"][image]) or [],
                "layers": [_layer(found, image, index, name, lattice) for index, name in enumerate(layers)],
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


def _layer(found: Measurement, image: int, index: int, name: str, lattice: int) -> dict[str, Any]:
    values = found.values
    about: dict[str, Any] = {
        "name": name,
        "kind": str(values["kind"][index]),
        "why": str(values["why"][index]),
        "why_no_lens": str(values["why no lens"][index]),
        "lens": _ranked(values["lens class"][image, index], values["lens probability"][image, index]),
        "heads": 0,
    }
    if f"maps of {name}" not in values:
        return about
    if not _finite(found, name, image, index):
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


def _finite(found: Measurement, name: str, image: int, index: int) -> bool:
    """Whether all numbers of a layer are: JSON knows no others, and half a map would mislead."""
    numbers = [found.values[f"{what} of {name}"][image] for what in ("peak", "prefix", "entropy")]
    return all(bool(np.isfinite(each).all()) for each in (*numbers, found.values["bound"][index]))


def _rounded(values: np.ndarray) -> list[Any]:
    rounded: list[Any] = values.astype(float).round(4).tolist()
    return rounded


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.uint8).tobytes()).decode()


def _escaped(data: dict[str, Any]) -> str:
    """JSON that can stand inside a script element, whatever strings it holds."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _template(name: str) -> str:
    return (files("vitlab.reporting") / "templates" / name).read_text(encoding="utf-8")
