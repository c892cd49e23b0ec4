"""Compute the data that the page shows for a model, an image and a condition, ready for JSON.

Shape legend: C channels, H heads, M key tokens, h w pixels or grid, K classes.
"""

from __future__ import annotations

import base64
import io
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.transforms import functional as F

from vitlab.adapters import describe
from vitlab.core.anatomy import Anatomy
from vitlab.core.errors import VitlabError
from vitlab.corruptions.apply import corrupt
from vitlab.explore.images import ImageCollection
from vitlab.instruments.attention_view import quantise, top
from vitlab.instruments.shared.image_trace import ImageTrace, LayerTrace
from vitlab.preprocessing import Preprocessing

OCCLUSION = "Hidden patches are set to 0 after normalisation, which is the mean colour (CB Table 8)."
_CACHED = 16  # traces in memory per model: clean and changed conditions of recent images


@dataclass(frozen=True)
class Condition:
    """An image, a corruption of some severity (0: none), and hidden cells of the grid."""

    image: str
    corruption: str = ""
    severity: int = 0
    hidden: tuple[int, ...] = ()


@dataclass(frozen=True)
class Query:
    """The query token: a prefix token by index, or the token at a position of the image, 0 to 1 along each side."""

    y: float = 0.5
    x: float = 0.5
    prefix: int | None = None


def hide(image: Tensor, cells: Sequence[int], grid: tuple[int, int]) -> Tensor:
    """Set cells of a grid over an image to 0, numbered row by row.

    Args:
        image: (C, h, w), normalised: 0 is the mean colour.
        cells: numbers of cells.
        grid: rows and columns.

    >>> hide(torch.ones(1, 2, 4), [1], (1, 2))[0]
    tensor([[1., 1., 0., 0.],
            [1., 1., 0., 0.]])
    """
    rows, columns = grid
    hidden = torch.zeros(rows * columns, dtype=torch.bool)
    for cell in cells:
        if not 0 <= cell < len(hidden):
            raise VitlabError(f"invalid patch {cell}; expected 0 to {len(hidden) - 1}")
        hidden[cell] = True
    y, x = (torch.arange(side) * count // side for side, count in zip(image.shape[-2:], grid, strict=True))
    return image.masked_fill(hidden.view(grid)[y[:, None], x], 0.0)


def page_grid(anatomy: Anatomy) -> tuple[int, int]:
    """The grid of selectable patches: the query grid with a number of rows nearest to 14; 14 × 14 if there is none."""
    grids = [block.mixer.queries.grid for block in anatomy.blocks if block.mixer.queries is not None]
    grids = [grid for grid in grids if grid[0] * grid[1] > 1]
    return min(grids, key=lambda grid: abs(grid[0] - 14), default=(14, 14))


@dataclass
class ShownModel:
    """One model of the page.

    Args:
        name: its name on the page.
        model: the model.
        trace: records one image of the model's input size; see `instruments.shared.image_trace`.
        preprocessing: the preprocessing of the model.
        classes: names of its outputs.
    """

    name: str
    model: nn.Module
    trace: Callable[[Tensor], ImageTrace]
    preprocessing: Preprocessing
    classes: Sequence[str]
    _traces: OrderedDict[Condition, tuple[Tensor, ImageTrace]] = field(default_factory=OrderedDict)

    def view(self, images: ImageCollection, condition: Condition, grid: tuple[int, int]) -> dict[str, Any]:
        """The image, predictions and layers, which do not depend on the query token."""
        pixels, trace = self._traced(images, condition, grid)
        return {
            "label": images.label(condition.image),
            "picture": _data_url(pixels),
            "predictions": top(trace.logits, self.classes, 5),
            "layers": [self._layer(layer) for layer in trace.layers],
        }

    def rows(
        self, images: ImageCollection, condition: Condition, grid: tuple[int, int], query: Query
    ) -> list[dict[str, Any]]:
        """Attention maps of every layer and head for a query token."""
        return [_row(layer, query) for layer in self._traced(images, condition, grid)[1].layers]

    def _layer(self, layer: LayerTrace) -> dict[str, Any]:
        about: dict[str, Any] = {"name": layer.name, "kind": layer.kind, "heads": layer.heads, "why": layer.why_no_map}
        if layer.call is not None:
            keys = layer.call.keys
            about |= {"grid": keys.grid, "prefix": keys.prefix, "windows": keys.windows}
            about |= {"queries": layer.call.queries.prefix, "bound": layer.bound}
            about["entropy"] = layer.entropy().tolist()
        about["lens"] = None if layer.logits is None else top(layer.logits, self.classes, 3)
        return about | {"why_no_lens": layer.why_no_logits}

    def _traced(
        self, images: ImageCollection, condition: Condition, grid: tuple[int, int]
    ) -> tuple[Tensor, ImageTrace]:
        """The pixels as shown and the trace of the model, cached by condition."""
        if condition not in self._traces:
            device = next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))
            preprocessing = self.preprocessing
            mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (preprocessing.mean, preprocessing.std))
            pixels = preprocessing.transform()(images.picture(condition.image)).float() / 255
            if condition.severity and condition.corruption:
                key = [images.key(condition.image)]
                pixels = corrupt(pixels[None], condition.corruption, condition.severity, indices=key)[0]
            image = hide((pixels - mean) / std, condition.hidden, grid)
            shown = (image * std + mean).clamp(0, 1)
            self._traces[condition] = shown, self.trace(image[None].to(device))
        self._traces.move_to_end(condition)
        while len(self._traces) > _CACHED:
            self._traces.popitem(last=False)
        return self._traces[condition]


def size_and_grid(model: nn.Module) -> tuple[tuple[int, int], tuple[int, int]]:
    """The input size of a model, and the grid of selectable patches."""
    anatomy = describe(model)
    return anatomy.input_size, page_grid(anatomy)


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
    maps, peaks = quantise(row[:, keys.prefix :])
    return {
        "maps": base64.b64encode(maps.cpu().numpy().tobytes()).decode(),
        "peaks": peaks.tolist(),
        "prefix": row[:, : keys.prefix].tolist(),
        "entropy": (-torch.xlogy(row, row).sum(-1)).tolist(),
    }


def _data_url(pixels: Tensor) -> str:
    file = io.BytesIO()
    F.to_pil_image(pixels).save(file, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
