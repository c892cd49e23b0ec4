"""The explorer's view inside a report: measurements of `attention_view` as a fragment of HTML, without a server."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from importlib.resources import files
from itertools import count
from typing import Any

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement

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
    data = {"grid": [lattice, lattice], "models": [_model(measurement, lattice) for measurement in measurements]}
    style, script = (_template(f"attention_view.{kind}") for kind in ("css", "js"))
    return (
        f"<style>{style}</style>\n"
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
                "predictions": _ranked(found.values["class"][image], found.values["probability"][image]),
                "layers": [_layer(found, image, index, name, lattice) for index, name in enumerate(layers)],
            }
            for image in images
        ],
    }


def _picture(pixels: np.ndarray) -> dict[str, Any]:
    return {"height": pixels.shape[0], "width": pixels.shape[1], "rgb": _base64(pixels)}


def _ranked(names: np.ndarray, probabilities: np.ndarray) -> list[dict[str, Any]]:
    pairs = zip(names.tolist(), probabilities.tolist(), strict=True)
    return [{"name": name, "probability": round(probability, 6)} for name, probability in pairs]


def _layer(found: Measurement, image: int, index: int, name: str, lattice: int) -> dict[str, Any]:
    values = found.values
    probabilities = values["lens probability"][image, index]
    read = bool(np.isfinite(probabilities).all())
    about: dict[str, Any] = {
        "name": name,
        "kind": str(values["kind"][index]),
        "why": str(values["why"][index]),
        "why_no_lens": str(values["why no lens"][index]),
        "lens": _ranked(values["lens class"][image, index], probabilities) if read else None,
        "heads": 0,
    }
    if f"maps of {name}" not in values:
        return about
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


def _rounded(values: np.ndarray) -> list[Any]:
    rounded: list[Any] = values.astype(float).round(4).tolist()
    return rounded


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.uint8).tobytes()).decode()


def _escaped(data: dict[str, Any]) -> str:
    """JSON that can stand inside a script element, whatever strings it holds."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _template(name: str) -> str:
    return (files("vitlab.reporting") / "templates" / name).read_text(encoding="utf-8")
