"""Attention maps of chosen images and heads: rows as pictures (CB Fig. 10), and whole maps (TAPADL Figs. 1, 3, 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure
from vitlab.reporting.findings import finding
from vitlab.reporting.mosaic import mosaic, tile
from vitlab.reporting.panels import short, shrunk
from vitlab.reporting.readings import mean

_IMAGES, _HEADS, _QUERIES, _LAYERS, _SIDE = 3, 8, 3, 3, 49  # maximum numbers that are drawn
_BRIGHTEST = 98  # the percentile at the end of the colour scale: a single large weight would make all others dark


@dataclass(frozen=True)
class Maps:
    """The maps of one layer of one model, (image, head, query, key), and the layout of its keys."""

    subject: str
    layer: str
    weights: np.ndarray
    images: tuple[object, ...]
    heads: tuple[object, ...]
    queries: tuple[int, ...]
    grid: tuple[int, int]
    prefix: int


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """For each layer: rows of the selected queries as pictures, and whole maps if all queries were stored."""
    layers = [_layers(measurement) for measurement in measurements]
    figures = []
    for depth in range(min(_LAYERS, max(map(len, layers)))):
        found = [own[depth] for own in layers if depth < len(own)]
        pictures = [maps for maps in found if _shown_queries(maps)]
        figures += [_pictures(pictures)] if pictures else []
        whole = [maps for maps in found if len(maps.queries) > _QUERIES]
        figures += [_whole(whole)] if whole else []
    return figures


def _layers(measurement: Measurement) -> list[Maps]:
    grids, prefixes = (np.asarray(measurement.values[name]) for name in ("key_grid", "key_prefix"))
    found = []
    for index, layer in enumerate(map(str, measurement.axes["layer"])):
        weights = np.asarray(measurement.values[layer], dtype=float)
        images = measurement.axes.get("image", tuple(range(len(weights))))
        heads = measurement.axes.get(f"head of {layer}", tuple(range(weights.shape[1])))
        queries = measurement.axes.get(f"query of {layer}", tuple(range(weights.shape[2])))
        grid = (int(grids[index][0]), int(grids[index][1]))
        found.append(Maps(measurement.subject, layer, weights, images, heads, queries, grid, int(prefixes[index])))
    return found


def _pictures(found: Sequence[Maps]) -> Figure:
    """Rows of attention on the grid of the image; a row of tiles for each model, image and query."""
    rows: list[tuple[str, Maps, list[np.ndarray]]] = []
    for maps in found:
        for image in range(min(_IMAGES, len(maps.weights))):
            for query in _shown_queries(maps):
                tiles = [row[maps.prefix :].reshape(maps.grid) for row in _heads(maps.weights[image, :, query])]
                rows.append((f"{_name(maps, image)}, {_token(maps, query)}", maps, tiles))
    tokens = dict.fromkeys(_token(maps, query) for maps in found for query in _shown_queries(maps))
    title = _finding(found, f"the {' and '.join(tokens)}", [_shown_queries(maps) for maps in found])
    return Figure(title, "CB Fig. 10", _tiles(rows, f"head, {_named(found)}"))


def _whole(found: Sequence[Maps]) -> Figure:
    """Whole maps, queries as rows and keys as columns, averaged over blocks."""
    rows = [
        (_name(maps, image), maps, [shrunk(head, _SIDE) for head in _heads(maps.weights[image])])
        for maps in found
        for image in range(min(_IMAGES, len(maps.weights)))
    ]
    x = f"head, {_named(found)} (in each square: queries down, keys across)"
    every = [list(range(len(maps.queries))) for maps in found]
    return Figure(_finding(found, "all tokens", every), "TAPADL Figs. 1, 3, 4", _tiles(rows, x))


def _tiles(rows: Sequence[tuple[str, Maps, list[np.ndarray]]], x: str) -> object:
    values = np.concatenate([np.ravel(one) for _, _, tiles in rows for one in tiles])
    values = values[np.isfinite(values)]
    high = (float(np.percentile(values, _BRIGHTEST)) or float(values.max()) or 1.0) if values.size else 1.0
    widest = max((maps for _, maps, _ in rows), key=lambda maps: len(maps.heads))
    columns = _head_names(widest)
    plot = mosaic([name for name, _, _ in rows], columns, x, "attention weight", 0, high)
    for place, (name, _, tiles) in enumerate(rows):
        for column, one in enumerate(tiles):
            tile(plot, one, place, column, f"{name}, {columns[column]}")
    return plot


def _heads(weights: np.ndarray) -> list[np.ndarray]:
    """The mean over heads, if there are several, then the heads."""
    several = [weights.mean(0)] if len(weights) > 1 else []
    return [*several, *weights[:_HEADS]]


def _head_names(maps: Maps) -> list[str]:
    names = [str(head + 1) if isinstance(head, int) else str(head) for head in maps.heads[:_HEADS]]
    return (["mean"] if len(maps.heads) > 1 else []) + names


def _shown_queries(maps: Maps) -> list[int]:
    """Positions of the queries whose rows are drawn: all if there are few, else the class token's."""
    if len(maps.queries) <= _QUERIES:
        return list(range(len(maps.queries)))
    return [maps.queries.index(0)] if maps.prefix and 0 in maps.queries else []


def _token(maps: Maps, query: int) -> str:
    token = maps.queries[query]
    return "class token" if token == 0 and maps.prefix else f"token {token}"


def _name(maps: Maps, image: int) -> str:
    subject = short(maps.subject)
    return f"{subject}, image {maps.images[image]}" if len(maps.weights) > 1 else subject


def _named(found: Sequence[Maps]) -> str:
    return " and ".join(dict.fromkeys(maps.layer for maps in found))


def _finding(found: Sequence[Maps], which: str, queries: Sequence[list[int]]) -> str:
    """The effective number of keys: exp of the entropy of rows, normalised to sum to 1."""
    spreads = []
    for maps, shown in zip(found, queries, strict=True):
        rows = maps.weights[:, :, shown]
        total = rows.sum(-1, keepdims=True)
        rows = rows / np.where(total > 0, total, np.nan)
        logs = np.log(np.where(rows > 0, rows, 1.0))
        spreads.append(mean(np.exp(-(rows * logs).sum(-1))))
    names = [maps.subject for maps in found]
    words = ("fewer", "more")
    what = f"Effective number of keys of {which} in {_named(found)}"
    return finding(what, spreads, names, words=words)
