"""What the explorer shows, kept for a report: a few images, and where every layer and head looks from a few tokens.

Shape legend: I images, H heads, Q query tokens, P prefix tokens, L layers, R ranks, h w key grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.data.class_names import output_names
from vitlab.instruments.shared.image_trace import Layer, Look, looking
from vitlab.instruments.shared.predictions import device_of
from vitlab.recording.attention_call import entropy

CARD = Card(
    title="A view of attention to click through in a report: maps from a lattice of patches, predictions, logit lens",
    paper="CB Fig. 10; TAPADL Figs. 1, 3, 4",
    cost="one forward for each image",
    inputs="images",
    passes="one",
)

_RANKS = 3  # predictions of the lens; of the model itself, two more


def quantise(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as bytes, each with its largest entry as 255, and these entries.

    Args:
        rows: (..., M), not negative.

    Returns:
        (..., M) uint8 and (...).

    >>> quantise(torch.tensor([[0.5, 0.25, 0.0]]))
    (tensor([[255, 128,   0]], dtype=torch.uint8), tensor([0.5000]))
    """
    peaks = rows.amax(-1) if rows.shape[-1] else rows.new_zeros(rows.shape[:-1])
    share = rows / peaks[..., None].clamp_min(torch.finfo(rows.dtype).tiny)
    return (share * 255).round().to(torch.uint8), peaks


def top(logits: Tensor, classes: Sequence[str], count: int) -> list[dict[str, Any]]:
    """The most probable classes, the first one first.

    >>> [(found["name"], round(found["probability"], 2)) for found in top(torch.tensor([0.0, 1.1]), ["a", "b"], 5)]
    [('b', 0.75), ('a', 0.25)]
    """
    probabilities, places = logits.float().softmax(-1).topk(min(count, len(logits)))
    pairs = zip(probabilities.tolist(), places.tolist(), strict=True)
    return [
        {"name": classes[i] if i < len(classes) else f"class {i}", "probability": probability}
        for probability, i in pairs
    ]


def coarsen(maps: Tensor, grid: tuple[int, int], side: int) -> tuple[Tensor, tuple[int, int]]:
    """Maps with at most `side` rows and columns: what falls into a larger cell is added up.

    Args:
        maps: (..., h·w)
        grid: (h, w)
        side: the largest number of rows and of columns.

    >>> coarsen(torch.ones(1, 16), (4, 4), 2)
    (tensor([[4., 4., 4., 4.]]), (2, 2))
    """
    small = (min(grid[0], side), min(grid[1], side))
    if small == grid or not maps.numel():
        return maps, grid
    pooled = F.adaptive_avg_pool2d(maps.reshape(1, -1, *grid), small)
    share = grid[0] * grid[1] / (small[0] * small[1])
    return (pooled * share).reshape(*maps.shape[:-1], -1), small


def measure(
    model: nn.Module, batches: Iterable[Any], *, images: int = 2, lattice: int = 7, side: int = 16, picture: int = 112
) -> Measurement:
    """Look at the first images from a lattice of patches and from every prefix token.

    Args:
        model: a classifier of any family; where there are no maps, predictions and lens remain.
        batches: `Batches`, or yields (images, targets) or images; a plain list shows pictures stretched to [0, 1].
        images: how many.
        lattice: rows and columns of the places to look from; of each, the token in its middle.
        side: largest number of rows and columns of a map that is kept; finer ones are added up.
        picture: largest side of the pictures that are kept, in pixels.

    Returns:
        `pictures` (image, row, column, channel) uint8; `label` (image), empty where there is none; `class` and
        `probability` (image, rank); `lens class` and `lens probability` (image, layer, lens rank), empty and NaN where
        the head cannot read a layer; `grid` (layer, side) of the maps, and `bound` (layer) of the entropy; `kind`,
        `why` and `why no lens` (layer), text. For every layer with maps, by its name: `maps of` (image, head, query,
        key) uint8, `peak of` and `entropy of` (image, head, query), `prefix of` (image, head, query, prefix). Queries
        are the prefix tokens, then the lattice row by row.
    """
    for name, value in {"images": images, "lattice": lattice, "side": side, "picture": picture}.items():
        if value < 1:
            raise VitlabError(f"attention_view got {name}={value}; expected at least 1")
    chosen, labels = _first(batches, images)
    chosen = chosen.to(device_of(model))
    size = (int(chosen.shape[-2]), int(chosen.shape[-1]))
    with looking(model, size) as look:
        looks = [look(image[None]) for image in chosen]
    classes = output_names(len(looks[0].logits), getattr(batches, "classes", ()))
    found = {"pictures": _pictures(chosen, batches, picture), **_about(looks, classes)}
    found["label"] = np.array([classes[i] if 0 <= i < len(classes) else "" for i in labels])
    dims = {name: _DIMS[name] for name in found}
    for index, layer in enumerate(looks[0].layers):
        if layer.call is None:
            continue
        maps, grid = _maps([each.layers[index] for each in looks], lattice, side)
        found["grid"][index] = grid
        for name, array in maps.items():
            found[f"{name} of {layer.name}"] = array
            own = ("head", "query", {"maps": "key", "prefix": "prefix"}.get(name, ""))
            dims[f"{name} of {layer.name}"] = ("image", *(f"{axis} of {layer.name}" for axis in own if axis))
    axes = {"layer": tuple(layer.name for layer in looks[0].layers)}
    settings = {"images": images, "lattice": lattice, "side": side, "picture": picture}
    about = provenance(device=str(chosen.device), images=images, data=getattr(batches, "fingerprint", ""))
    return Measurement("attention_view", type(model).__name__, found, dims, axes, settings, about)


_DIMS: dict[str, tuple[str, ...]] = {
    "pictures": ("image", "row", "column", "channel"),
    "label": ("image",),
    "class": ("image", "rank"),
    "probability": ("image", "rank"),
    "lens class": ("image", "layer", "lens rank"),
    "lens probability": ("image", "layer", "lens rank"),
    "grid": ("layer", "side"),
    "bound": ("layer",),
    "kind": ("layer",),
    "why": ("layer",),
    "why no lens": ("layer",),
}


def _first(batches: Iterable[Any], count: int) -> tuple[Tensor, list[int]]:
    """The first images, and their labels, -1 where there are none."""
    found: list[Tensor] = []
    labels: list[int] = []
    for item in batches:
        batch, targets = (item[0], item[-1]) if isinstance(item, (tuple, list)) else (item, None)
        if not isinstance(batch, Tensor) or batch.ndim != 4:
            break
        if isinstance(targets, Tensor) and targets.shape == batch.shape[:1] and not targets.is_floating_point():
            labels += targets.tolist()
        else:
            labels += [-1] * len(batch)
        found += list(batch[: count - len(found)])
        if len(found) == count:
            return torch.stack(found), labels[:count]
    raise VitlabError(f"attention_view was asked for {count} images, but the batches hold {len(found)} of (B, C, h, w)")


def _pictures(images: Tensor, batches: Any, side: int) -> np.ndarray:
    """(I, h, w, 3) uint8, small enough to stand in a page."""
    if hasattr(batches, "mean") and hasattr(batches, "std"):
        mean, std = (torch.tensor(each, device=images.device).view(-1, 1, 1) for each in (batches.mean, batches.std))
        pixels = images * std + mean
    else:
        low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
        pixels = (images - low) / (high - low).clamp_min(1e-12)
    scale = min(1.0, side / max(images.shape[-2:]))
    small = (max(1, round(images.shape[-2] * scale)), max(1, round(images.shape[-1] * scale)))
    pixels = F.interpolate(pixels[:, :3].float(), small, mode="area").clamp(0, 1).mul(255).round()
    kept: np.ndarray = pixels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).to(torch.uint8).cpu().numpy()
    return kept


def _about(looks: Sequence[Look], classes: Sequence[str]) -> dict[str, np.ndarray]:
    layers = looks[0].layers
    own = [top(look.logits, classes, _RANKS + 2) for look in looks]
    lens = [[_lens(layer, classes, min(_RANKS, len(looks[0].logits))) for layer in look.layers] for look in looks]
    return {
        "class": np.array([[entry["name"] for entry in row] for row in own]),
        "probability": np.array([[entry["probability"] for entry in row] for row in own]),
        "lens class": np.array([[[entry["name"] for entry in row] for row in look] for look in lens]),
        "lens probability": np.array([[[entry["probability"] for entry in row] for row in look] for look in lens]),
        "grid": np.zeros((len(layers), 2), dtype=np.int64),
        "bound": np.array([layer.bound for layer in layers]),
        "kind": np.array([layer.kind for layer in layers]),
        "why": np.array([layer.why_no_map for layer in layers]),
        "why no lens": np.array([layer.why_no_logits for layer in layers]),
    }


def _lens(layer: Layer, classes: Sequence[str], count: int) -> list[dict[str, Any]]:
    if layer.logits is None:
        return [{"name": "", "probability": float("nan")}] * count
    return top(layer.logits, classes, count)


def _maps(layers: Sequence[Layer], lattice: int, side: int) -> tuple[dict[str, np.ndarray], tuple[int, int]]:
    """What is kept of one layer at all images, and the grid of its maps."""
    call = layers[0].call
    assert call is not None
    tokens = list(range(call.queries.prefix))
    middles = [(i + 0.5) / lattice for i in range(lattice)]
    places = [layers[0].token_at(y, x) for y in middles for x in middles]
    tokens += [token for token in places if token is not None]
    rows = torch.stack([torch.stack([layer.row(token) for token in tokens], 1) for layer in layers])  # (I, H, Q, M)
    prefix, grid = call.keys.prefix, call.keys.grid
    maps, grid = coarsen(rows[..., prefix:], grid, side)
    quantised, peaks = quantise(maps)
    found = {"maps": quantised, "peak": peaks, "prefix": rows[..., :prefix], "entropy": entropy(rows)}
    return {name: value.cpu().numpy() for name, value in found.items()}, grid
