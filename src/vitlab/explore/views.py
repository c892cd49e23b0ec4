"""Compute the data that a panel of the page shows for a model and a condition, ready for JSON.

Shape legend: C channels, H heads, M key tokens, h w pixels, K classes.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import functional as F

from vitlab.explore.conditions import Condition, Query
from vitlab.explore.shown_model import ShownModel
from vitlab.instruments.attention_view import information, quantise, top
from vitlab.instruments.shared.image_trace import LayerTrace

_SHOWN, _REFERENCE = 5, 3  # most probable classes of the condition, and of the one that it is compared with


def view(shown: ShownModel, condition: Condition) -> dict[str, Any]:
    """The image, predictions and layers, which do not depend on the query token."""
    trace = shown.trace(condition)
    layers = zip(trace.layers, shown.places, strict=True)
    return {
        "label": shown.images.label(condition.image),
        "label_index": shown.label_output(condition.image),
        "picture": _data_url(shown.picture(condition)),
        **predictions(shown, condition),
        "layers": [_layer(shown, layer) | {"places": places} for layer, places in layers],
    }


def predictions(shown: ShownModel, condition: Condition) -> dict[str, Any]:
    """The most probable classes, with their probability before the change.

    Returns:
        `predictions` in descending order of probability; `reference`, the name of the condition that `before` belongs
        to, empty if nothing is changed.
    """
    now = shown.trace(condition).logits.float().softmax(-1)
    chosen = now.topk(min(_SHOWN, len(now))).indices.tolist()
    found = condition.reference()
    before = None
    if found is not None:
        before = shown.trace(found[1]).logits.float().softmax(-1)
        chosen += [i for i in before.topk(min(_REFERENCE, len(now))).indices.tolist() if i not in chosen]
        label = shown.label_output(condition.image)
        chosen += [label] if label is not None and label not in chosen else []
    rows = []
    for i in sorted(chosen, key=lambda index: -float(now[index])):
        row = {"index": i, "name": shown.classes[i], "probability": float(now[i])}
        rows.append(row if before is None else row | {"before": float(before[i])})
    return {"predictions": rows, "reference": found[0] if found else ""}


def rows(shown: ShownModel, condition: Condition, query: Query) -> list[dict[str, Any]]:
    """Attention maps of every layer and head for a query token."""
    return [_row(layer, query) for layer in shown.trace(condition).layers]


def encoded(maps: Tensor) -> dict[str, Any]:
    """Maps (…, M) as bytes in base64, the maximum of each map as 255, and these maxima."""
    values, peaks = quantise(maps)
    return {"maps": base64.b64encode(values.cpu().numpy().tobytes()).decode(), "peaks": peaks.tolist()}


def _layer(shown: ShownModel, layer: LayerTrace) -> dict[str, Any]:
    about: dict[str, Any] = {"name": layer.name, "kind": layer.kind, "heads": layer.heads, "why": layer.why_no_map}
    if layer.call is not None:
        keys = layer.call.keys
        about |= {"grid": keys.grid, "prefix": keys.prefix, "windows": keys.windows}
        about |= {"queries": layer.call.queries.prefix, "bound": layer.bound}
        about["entropy"] = layer.entropy().tolist()
    about["lens"] = None if layer.logits is None else top(layer.logits, shown.classes, 3)
    if layer.logits is not None:
        about["information"] = information(layer.logits)
    return about | {"why_no_lens": layer.why_no_logits}


def _row(layer: LayerTrace, query: Query) -> dict[str, Any]:
    if layer.call is None:
        return {"why": layer.why_no_map}
    queries, keys = layer.call.queries, layer.call.keys
    token = layer.token_at(query.y, query.x) if query.prefix is None else query.prefix
    if token is None:
        return {"why": "only the class token is a query in this layer"}
    if query.prefix is not None and query.prefix >= queries.prefix:
        return {"why": "this token is not in this layer"}
    row = layer.row(token)
    return {
        **encoded(row[:, keys.prefix :]),
        "prefix": row[:, : keys.prefix].tolist(),
        "entropy": (-torch.xlogy(row, row).sum(-1)).tolist(),
    }


def _data_url(pixels: Tensor) -> str:
    file = io.BytesIO()
    F.to_pil_image(pixels).save(file, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
