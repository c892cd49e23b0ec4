"""Attention view: data of the explorer for a report, with attention of a few images from a lattice of query tokens.

Shape legend: I images, H heads, Q query tokens, P prefix tokens, L layers, R ranks, h w key grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.core.bounds import Range
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.data.class_names import output_names
from vitlab.data.thumbnails import input_thumbnails
from vitlab.instruments.shared.image_trace import ImageTrace, LayerTrace, image_tracer
from vitlab.instruments.shared.predictions import device_of
from vitlab.recording.attention_call import entropy

CARD = Card(
    title="A view of attention to click through in a report: maps from a lattice of patches, predictions, logit lens",
    paper="CB Fig. 10; TAPADL Figs. 1, 3, 4",
    cost="one forward for each image",
    inputs="images",
    passes="one",
)

_RANKS = 3  # stored predictions of the logit lens; the model's own predictions have two more


def quantise(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise rows to bytes, the maximum of each row as 255; also return the maxima.

    Args:
        rows: (..., M), non-negative.

    Returns:
        (..., M) uint8 and (...).

    >>> quantise(torch.tensor([[0.5, 0.25, 0.0]]))
    (tensor([[255, 128,   0]], dtype=torch.uint8), tensor([0.5000]))
    """
    peaks = rows.amax(-1) if rows.shape[-1] else rows.new_zeros(rows.shape[:-1])
    share = rows / peaks[..., None].clamp_min(torch.finfo(rows.dtype).tiny)
    return (share * 255).round().to(torch.uint8), peaks


def top(logits: Tensor, classes: Sequence[str], count: int) -> list[dict[str, Any]]:
    """The most probable classes in descending order.

    >>> [(entry["name"], round(entry["probability"], 2)) for entry in top(torch.tensor([0.0, 1.1]), ["a", "b"], 5)]
    [('b', 0.75), ('a', 0.25)]
    """
    probabilities, indices = logits.float().softmax(-1).topk(min(count, len(logits)))
    pairs = zip(probabilities.tolist(), indices.tolist(), strict=True)
    return [
        {"name": classes[i] if i < len(classes) else f"class {i}", "probability": probability}
        for probability, i in pairs
    ]


def information(logits: Tensor) -> float:
    """1 − H / log K of the predicted distribution: 0 if it is uniform, 1 if one class has all probability.

    Args:
        logits: (K,)

    >>> information(torch.zeros(4)), information(torch.tensor([100.0, 0.0]))
    (0.0, 1.0)
    """
    entropy_of_classes = torch.special.entr(logits.cpu().double().softmax(-1)).sum()
    return max(0.0, 1 - float(entropy_of_classes) / max(math.log(len(logits)), 1e-12))


def coarsen(maps: Tensor, grid: tuple[int, int], side: int) -> tuple[Tensor, tuple[int, int]]:
    """Reduce maps to at most `side` rows and columns by sum pooling.

    Args:
        maps: (..., h·w)
        grid: (h, w)
        side: maximum number of rows and of columns.

    >>> coarsen(torch.ones(1, 16), (4, 4), 2)
    (tensor([[4., 4., 4., 4.]]), (2, 2))
    """
    small = (min(grid[0], side), min(grid[1], side))
    if small == grid or not maps.numel():
        return maps, grid
    pooled = F.adaptive_avg_pool2d(maps.reshape(1, -1, *grid), small)
    share = grid[0] * grid[1] / (small[0] * small[1])
    return (pooled * share).reshape(*maps.shape[:-1], -1), small


def _rows(lattice: int) -> str:
    return f"{lattice:,} x {lattice:,} cells are {lattice**2:,} attention maps for each layer, head and image"


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    images: Annotated[int, Range(1, 1000)] = 2,
    lattice: Annotated[int, Range(1, 64, cost=_rows)] = 7,
    side: Annotated[int, Range(1, 1024)] = 16,
    picture: Annotated[int, Range(1, 4096)] = 112,
) -> Measurement:
    """Attention of the first images from a lattice of patches and from every prefix token.

    Args:
        model: a classifier of any family; without attention maps, only predictions and the logit lens are returned.
        batches: `Batches`, or yields (images, targets) or images; without `Batches`, pictures are rescaled to [0, 1].
        images: maximum number of images, the first of those given. They are pictures to look at and are not averaged,
            so the number is small by default; `--images` of the command line does not raise it.
        lattice: number of rows and columns of cells; the query of each cell is the token at its centre.
        side: maximum number of rows and columns of a stored map; larger maps are reduced by sum pooling.
        picture: maximum side of the stored pictures in pixels.

    Returns:
        `pictures` (image, row, column, channel) uint8; `label` (image), empty if unknown; `class` and `probability`
        (image, rank); `lens class` and `lens probability` (image, layer, lens rank), empty and NaN where the logit lens
        does not apply to a layer; `lens information` (image, layer), see `information`; `grid` (layer, side) of the
        maps, and `bound` (layer) of the entropy; `kind`, `why` and `why no lens` (layer), text. For every layer with
        maps, by its name: `maps of` (image, head, query, key) uint8, `peak of` and `entropy of` (image, head, query),
        `prefix of` (image, head, query, prefix). Queries are the prefix tokens, then the lattice row by row.
    """
    selected, labels = _first_images(batches, images)
    selected = selected.to(device_of(model))
    size = (int(selected.shape[-2]), int(selected.shape[-1]))
    with image_tracer(model, size) as trace_image:
        traces = [trace_image(image[None]) for image in selected]
    classes = output_names(len(traces[0].logits), getattr(batches, "classes", ()))
    values = {"pictures": input_thumbnails(selected, batches, picture), **_predictions(traces, classes)}
    values["label"] = np.array([classes[i] if 0 <= i < len(classes) else "" for i in labels])
    dims = {name: _DIMS[name] for name in values}
    for index, layer in enumerate(traces[0].layers):
        if layer.call is None:
            continue
        maps, grid = _maps([trace.layers[index] for trace in traces], lattice, side)
        values["grid"][index] = grid
        for name, array in maps.items():
            values[f"{name} of {layer.name}"] = array
            axis_names = ("head", "query", {"maps": "key", "prefix": "prefix"}.get(name, ""))
            dims[f"{name} of {layer.name}"] = ("image", *(f"{axis} of {layer.name}" for axis in axis_names if axis))
    axes = {"layer": tuple(layer.name for layer in traces[0].layers)}
    settings = {"images": images, "lattice": lattice, "side": side, "picture": picture}
    about = provenance(device=str(selected.device), images=len(selected), data=getattr(batches, "fingerprint", ""))
    return Measurement("attention_view", type(model).__name__, values, dims, axes, settings, about)


_DIMS: dict[str, tuple[str, ...]] = {
    "pictures": ("image", "row", "column", "channel"),
    "label": ("image",),
    "class": ("image", "rank"),
    "probability": ("image", "rank"),
    "lens class": ("image", "layer", "lens rank"),
    "lens probability": ("image", "layer", "lens rank"),
    "lens information": ("image", "layer"),
    "grid": ("layer", "side"),
    "bound": ("layer",),
    "kind": ("layer",),
    "why": ("layer",),
    "why no lens": ("layer",),
}


def _first_images(batches: Iterable[Any], count: int) -> tuple[Tensor, list[int]]:
    """At most `count` images, the first ones, and their labels; -1 if unknown."""
    images: list[Tensor] = []
    labels: list[int] = []
    for item in batches:
        batch, targets = (item[0], item[-1]) if isinstance(item, (tuple, list)) else (item, None)
        if not isinstance(batch, Tensor) or batch.ndim != 4:
            break
        if isinstance(targets, Tensor) and targets.shape == batch.shape[:1] and not targets.is_floating_point():
            labels += targets.tolist()
        else:
            labels += [-1] * len(batch)
        images += list(batch[: count - len(images)])
        if len(images) == count:
            break
    if not images:
        raise VitlabError("attention_view: the batches have no images; expected tensors of shape (B, C, h, w)")
    return torch.stack(images), labels[: len(images)]


def _predictions(traces: Sequence[ImageTrace], classes: Sequence[str]) -> dict[str, np.ndarray]:
    """Predictions of the model and of the logit lens, and properties of the layers."""
    layers, ranks = traces[0].layers, min(_RANKS, len(traces[0].logits))
    predictions = [top(trace.logits, classes, _RANKS + 2) for trace in traces]
    lens = [[_lens_predictions(layer, classes, ranks) for layer in trace.layers] for trace in traces]
    return {
        "class": np.array([[entry["name"] for entry in row] for row in predictions]),
        "probability": np.array([[entry["probability"] for entry in row] for row in predictions]),
        "lens class": np.array([[[entry["name"] for entry in row] for row in image] for image in lens]),
        "lens probability": np.array([[[entry["probability"] for entry in row] for row in image] for image in lens]),
        "lens information": np.array([[_lens_information(layer) for layer in trace.layers] for trace in traces]),
        "grid": np.zeros((len(layers), 2), dtype=np.int64),
        "bound": np.array([layer.bound for layer in layers]),
        "kind": np.array([layer.kind for layer in layers]),
        "why": np.array([layer.why_no_map for layer in layers]),
        "why no lens": np.array([layer.why_no_logits for layer in layers]),
    }


def _lens_predictions(layer: LayerTrace, classes: Sequence[str], count: int) -> list[dict[str, Any]]:
    if layer.logits is None:
        return [{"name": "", "probability": float("nan")}] * count
    return top(layer.logits, classes, count)


def _lens_information(layer: LayerTrace) -> float:
    return float("nan") if layer.logits is None else information(layer.logits)


def _maps(layers: Sequence[LayerTrace], lattice: int, side: int) -> tuple[dict[str, np.ndarray], tuple[int, int]]:
    """Stored arrays of one layer for all images, and the grid of its maps."""
    call = layers[0].call
    assert call is not None
    tokens = list(range(call.queries.prefix))
    centres = [(i + 0.5) / lattice for i in range(lattice)]
    lattice_tokens = [layers[0].token_at(y, x) for y in centres for x in centres]
    tokens += [token for token in lattice_tokens if token is not None]
    rows = torch.stack([torch.stack([layer.row(token) for token in tokens], 1) for layer in layers])  # (I, H, Q, M)
    prefix, grid = call.keys.prefix, call.keys.grid
    maps, grid = coarsen(rows[..., prefix:], grid, side)
    quantised, peaks = quantise(maps)
    arrays = {"maps": quantised, "peak": peaks, "prefix": rows[..., :prefix], "entropy": entropy(rows)}
    return {name: value.cpu().numpy() for name, value in arrays.items()}, grid
