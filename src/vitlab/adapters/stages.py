"""Models without blocks of attention and MLP: the outputs of their stages, for features, and what attention they have.

The stages of a timm model are those of its `feature_info`. A layer that contains a softmax between tokens is a block of
its own. Its map is not offered, because the order of its tokens is not known without an adapter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import Any

from torch import Tensor, nn

from vitlab.adapters.blocks import block_of, with_stage_ends
from vitlab.adapters.flow import Flow, Shape
from vitlab.adapters.softmaxes import softmax_modules
from vitlab.adapters.trial import leaf
from vitlab.core.anatomy import Block, Mixer, Order, Seam, TokenLayout

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_NO_ATTENTION = "no softmax between tokens was recorded in it"
_UNKNOWN_ORDER = "the layout of its attention map is not known; an adapter can describe it"


def stage_blocks(model: nn.Module, flow: Flow, inputs: Mapping[str, Tensor]) -> tuple[Block, ...]:
    """One block per layer with attention and per stage, in execution order; empty if none of them has a seam.

    Args:
        model: the model.
        flow: the shapes in one forward of it.
        inputs: the inputs of this forward.
    """
    attention = softmax_modules(model, inputs)
    result = _blocks(model, flow, {_layer(model, path): path for path in attention}, attention)
    if not any(block.seams for block in result):  # the tokens of these layers are not maps; those around them may be
        result = _blocks(model, flow, {_around(model, flow, path): path for path in attention}, attention)
    return with_stage_ends(result) if any(block.seams for block in result) else ()


def _blocks(
    model: nn.Module, flow: Flow, layers: Mapping[str, str], attention: Mapping[str, list[Shape]]
) -> list[Block]:
    """One block per layer with attention, and per stage.

    Args:
        model, flow: the model, and the shapes in one forward of it.
        layers: by path of a layer, that of its attention.
        attention: by path, the shapes of the softmax in it.
    """
    stages = dict(_stages(model, flow))
    order = [path for path in flow.calls if path in layers or path in stages]
    result: list[Block] = []
    for path in order:
        layout = _map(model, flow, path, stages.get(path))
        if layout is None and path in layers:
            layout = _tokens(flow, path, attention[layers[path]])
        places = [] if layout is None or _is_container(model, path) else [_out(flow, path, layout)]
        if path in layers:
            mixer = Mixer("attention", layers[path], why_no_map=_UNKNOWN_ORDER)
        elif places:
            mixer = Mixer(_kind(model), path, why_no_map=_NO_ATTENTION)
        else:
            continue
        stage = sum(other in stages for other in order[: order.index(path)])
        result.append(block_of(path, len(result), stage, mixer, places))
    return result


def _map(model: nn.Module, flow: Flow, path: str, channels: int | None = None) -> TokenLayout | None:
    """The layout of a module's output if it is a map."""
    return map_layout(flow.input("")[-2:], flow.output(path), channels, _format(model, path))


def _tokens(flow: Flow, path: str, maps: Sequence[Shape]) -> TokenLayout | None:
    """The layout of a layer's output (2, N, D), in unknown order; None for other shapes, such as those of windows.

    The grid is that of the first map with as many cells, where merging of 2×2 cells divides them by four. It is (1, N)
    if there is none and N is an axis of the softmax in the layer, so that it counts tokens. The tokens of a decoder are
    queries, not cells.
    """
    shape, size = flow.output(path), flow.input("")[-2:]
    if len(shape) != 3 or shape[0] != 2 or "decoder" in path:
        return None
    for earlier, call in flow.calls.items():
        if earlier == path:
            break
        layout = map_layout(size, call.output, output_format="NCHW")
        while layout is not None and layout.grid[0] * layout.grid[1] >= shape[1]:
            h, w = layout.grid
            if h * w == shape[1]:
                return TokenLayout((h, w), permutation=())
            layout = None if h % 2 or w % 2 else TokenLayout((h // 2, w // 2))
    counted = any(shape[1] in each for each in maps)
    return TokenLayout((1, shape[1]), permutation=()) if counted else None


def map_layout(
    size: Shape, shape: Shape, channels: int | None = None, output_format: str | None = None
) -> TokenLayout | None:
    """The layout of a map of two images, or None: both axes of the grid are the same fraction of the image.

    Where the channels could be a side of the grid, the order whose axes are nearer to the same fraction is taken. If
    both orders are equally near, the number of channels or the format decides.

    Args:
        size: height and width of the images.
        shape: of the map.
        channels: of the map, if they are known.
        output_format: `NCHW` or `NHWC`, if it is known.

    >>> map_layout((224, 224), (2, 96, 7, 7)).order
    'BCHW'
    >>> map_layout((64, 32), (2, 8, 4, 24)).grid
    (8, 4)
    >>> map_layout((224, 224), (2, 40, 56, 56)).order, map_layout((224, 224), (2, 56, 56, 40)).order
    ('BCHW', 'BHWD')
    """
    if len(shape) != 4 or shape[0] != 2:
        return None
    axes: tuple[tuple[Shape, Order, int, str], ...] = (
        (shape[2:], "BCHW", shape[1], "NCHW"),
        (shape[1:3], "BHWD", shape[3], "NHWC"),
    )
    found = [
        (abs(log((size[0] * w) / (size[1] * h))), width != channels, name != output_format, order, (h, w))
        for (h, w), order, width, name in axes
        if h <= size[0] and w <= size[1] and 2 / 3 < (size[0] * w) / (size[1] * h) < 3 / 2
    ]
    if not found or (len(found) == 2 and found[0][:3] == found[1][:3]):
        return None
    *_, order, (h, w) = min(found)
    return TokenLayout((h, w), order=order)


def _layer(model: nn.Module, path: str) -> str:
    """The nearest module around an attention module that is an item of a container, else the module itself."""
    parts = path.split(".")
    for end in range(len(parts), 1, -1):
        parent = model.get_submodule(".".join(parts[: end - 1]))
        module = model.get_submodule(".".join(parts[:end]))
        if isinstance(parent, _CONTAINERS) and not isinstance(module, _CONTAINERS):
            return ".".join(parts[:end])
    return path


def _around(model: nn.Module, flow: Flow, path: str) -> str:
    """The nearest item of a container around an attention module that returns a map; `_layer` if there is none."""
    parts = path.split(".")
    around = [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]
    items = [each for each in around if each == _layer(model, each) and not _is_container(model, each)]
    return next((each for each in items if flow.ran(each) and _map(model, flow, each)), _layer(model, path))


def _stages(model: Any, flow: Flow) -> Iterator[tuple[str, int | None]]:
    """The last layers of the stages that timm declares, and their channels."""
    information = getattr(model, "feature_info", None)
    entries = getattr(information, "info", information) or ()
    for entry in entries:
        path = entry.get("module", "") if isinstance(entry, dict) else ""
        if path and flow.ran(path):
            last = leaf(model, path, -1)
            if flow.ran(last):
                yield last, entry.get("num_chs")


def _format(model: nn.Module, path: str) -> str | None:
    """The format of a layer's map: timm's `output_fmt`, or that of convolutions in a layer without linear layers."""
    kinds = {type(module) for module in model.get_submodule(path).modules()}
    convolutions = nn.Conv2d in kinds and nn.Linear not in kinds
    declared = getattr(model, "output_fmt", None)
    return declared if isinstance(declared, str) else "NCHW" if convolutions else None


def _is_container(model: nn.Module, path: str) -> bool:
    return isinstance(model.get_submodule(path), _CONTAINERS)


def _out(flow: Flow, path: str, layout: TokenLayout) -> Seam:
    return flow.seam("block.out", path, "out", layout)


def _kind(model: nn.Module) -> str:
    convolves = any(isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1 for module in model.modules())
    return "conv" if convolves else "unknown"
