"""From a model, a picture and what is done to it to what the page shows: plain data, ready for JSON.

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

OCCLUSION = "Painted patches are zero as the model eats them, which is its mean colour (CB Table 8)."
_KEPT = 16  # looks that stay in memory: two models, clean and changed, a few steps back


@dataclass(frozen=True)
class Condition:
    """A picture and what is done to it: a corruption of some severity (0: none), then cells of the grid hidden."""

    image: str
    corruption: str = ""
    severity: int = 0
    hidden: tuple[int, ...] = ()


@dataclass(frozen=True)
class Query:
    """The token to look from: a prefix token by number, or the one at a place of the picture, 0 to 1 a side."""

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
            raise VitlabError(f"there is no patch {cell} to hide; there are {len(hidden)}, 0 to {len(hidden) - 1}")
        hidden[cell] = True
    y, x = (torch.arange(side) * count // side for side, count in zip(image.shape[-2:], grid, strict=True))
    return image.masked_fill(hidden.view(grid)[y[:, None], x], 0.0)


def page_grid(anatomy: Anatomy) -> tuple[int, int]:
    """The grid to click on: that of the queries whose rows are nearest to 14, and 14 × 14 where there are none."""
    grids = [block.mixer.queries.grid for block in anatomy.blocks if block.mixer.queries is not None]
    grids = [grid for grid in grids if grid[0] * grid[1] > 1]
    return min(grids, key=lambda grid: abs(grid[0] - 14), default=(14, 14))


@dataclass
class Subject:
    """One model on the page.

    Args:
        name: what the page calls it.
        model: the model.
        look: of `instruments.shared.image_trace.image_tracer`, for images of its size.
        preprocessing: how images are prepared for it.
        classes: names of its outputs.
    """

    name: str
    model: nn.Module
    look: Callable[[Tensor], ImageTrace]
    preprocessing: Preprocessing
    classes: Sequence[str]
    _looks: OrderedDict[Condition, tuple[Tensor, ImageTrace]] = field(default_factory=OrderedDict)

    def view(self, album: ImageCollection, condition: Condition, grid: tuple[int, int]) -> dict[str, Any]:
        """Everything that does not depend on the token to look from."""
        pixels, look = self._look(album, condition, grid)
        return {
            "label": album.label(condition.image),
            "picture": _data_url(pixels),
            "predictions": top(look.logits, self.classes, 5),
            "layers": [self._layer(layer) for layer in look.layers],
        }

    def rows(
        self, album: ImageCollection, condition: Condition, grid: tuple[int, int], query: Query
    ) -> list[dict[str, Any]]:
        """Where every layer and head looks from a token."""
        return [_row(layer, query) for layer in self._look(album, condition, grid)[1].layers]

    def _layer(self, layer: LayerTrace) -> dict[str, Any]:
        about: dict[str, Any] = {"name": layer.name, "kind": layer.kind, "heads": layer.heads, "why": layer.why_no_map}
        if layer.call is not None:
            keys = layer.call.keys
            about |= {"grid": keys.grid, "prefix": keys.prefix, "windows": keys.windows}
            about |= {"queries": layer.call.queries.prefix, "bound": layer.bound}
            about["entropy"] = layer.entropy().tolist()
        about["lens"] = None if layer.logits is None else top(layer.logits, self.classes, 3)
        return about | {"why_no_lens": layer.why_no_logits}

    def _look(self, album: ImageCollection, condition: Condition, grid: tuple[int, int]) -> tuple[Tensor, ImageTrace]:
        """Pixels as shown, and the look; from memory where the same was asked before."""
        if condition not in self._looks:
            device = next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))
            how = self.preprocessing
            mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (how.mean, how.std))
            pixels = how.transform()(album.picture(condition.image)).float() / 255
            if condition.severity and condition.corruption:
                key = [album.key(condition.image)]
                pixels = corrupt(pixels[None], condition.corruption, condition.severity, indices=key)[0]
            image = hide((pixels - mean) / std, condition.hidden, grid)
            shown = (image * std + mean).clamp(0, 1)
            self._looks[condition] = shown, self.look(image[None].to(device))
        self._looks.move_to_end(condition)
        while len(self._looks) > _KEPT:
            self._looks.popitem(last=False)
        return self._looks[condition]


def size_and_grid(model: nn.Module) -> tuple[tuple[int, int], tuple[int, int]]:
    """The size of a model's images, and the grid to click on."""
    anatomy = describe(model)
    return anatomy.input_size, page_grid(anatomy)


def _row(layer: LayerTrace, query: Query) -> dict[str, Any]:
    if layer.call is None:
        return {"why": layer.why_no_map}
    queries, keys = layer.call.queries, layer.call.keys
    token = layer.token_at(query.y, query.x) if query.prefix is None else query.prefix
    if token is None:
        return {"why": "here only the class token looks"}
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
