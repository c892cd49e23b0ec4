"""Models without an adapter: blocks are modules with an attention and an MLP child, found by name.

Names are only a hint, so that each block is tested, see `trial`. A block that fails has only the seam `block.out`.
A model without such blocks is described by its stages, see `stages`.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from vitlab.adapters import blank_images
from vitlab.adapters.blocks import block_of, with_stage_ends
from vitlab.adapters.flow import Flow, Shape
from vitlab.adapters.probing import between_tokens
from vitlab.adapters.softmaxes import softmax_modules
from vitlab.adapters.stages import stage_blocks
from vitlab.adapters.token_order import row_major
from vitlab.adapters.trial import Trial, last_linear, leaf
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout
from vitlab.core.errors import VitlabError

FAMILIES: dict[str, str] = {}
CLASSES: tuple[str, ...] = ()
_WHY_ABSENT = "the generic adapter could not confirm it for this model"
ABSENT = dict.fromkeys(("attn", "attn.in", "attn.out", "mlp.in", "mlp.mid", "mlp.out", "block.out"), _WHY_ABSENT)

_ATTENTION = ("attn", "attention", "self_attn", "self_attention", "attn_layer", "token_mixer", "mha", "msa")
_MLP = ("mlp", "ffn", "feed_forward", "feedforward", "ff")
_MAX_PREFIX = 16
_NOT_BETWEEN_TOKENS = (
    "its softmax is not between tokens: a change of one token changes more than the weights of its row and column "
    "(for example, attention between channels)"
)
_ON_META = "the model is on the meta device, where it cannot be tested whether its softmax is between tokens"
_CONTAINERS = (nn.Sequential, nn.ModuleList)


def family(model: nn.Module) -> str:
    """The family of all models without an adapter."""
    return "generic"


def blocks(model: nn.Module, flow: Flow) -> tuple[Block, ...]:
    """Every module with an attention and an MLP child, in execution order."""
    pairs = {path: _branches(model.get_submodule(path)) for path in flow.calls}
    halves = {path: pair for path, pair in pairs.items() if pair is not None}
    found = {path: _layout(model, flow, path, mlp) for path, (_, mlp) in halves.items()}
    unknown = [path for path, layout in found.items() if layout is None]
    if unknown or not halves:
        return _stages(model, flow, unknown)
    layouts = _in_order(model, flow, {path: layout for path, layout in found.items() if layout is not None}, halves)
    trial = Trial(model, flow, halves)
    result: list[Block] = []
    grids: list[tuple[int, int]] = []
    for path, (attention, mlp) in halves.items():
        layout = layouts[path]
        if layout.grid not in grids[-1:]:
            grids.append(layout.grid)  # a new grid is a new stage
        mixer = _mixer(model, flow, f"{path}.{attention}", layout, trial.maps[path])
        if mixer.queries is not None and trial.on_meta:
            mixer = Mixer("attention", mixer.path, why_no_map=_ON_META)
        elif mixer.queries is not None and not between_tokens(
            model.get_submodule(f"{path}.{attention}"), *trial.calls[path], layout
        ):
            mixer = Mixer("attention", mixer.path, why_no_map=_NOT_BETWEEN_TOKENS)
        places = [*_ends(model, flow, path, layout), *_inside(model, flow, path, attention, mlp, layout, trial)]
        if mixer.kind == "unknown":
            places = [place for place in places if not place.name.startswith("attn")]
        result.append(block_of(path, len(result), len(grids) - 1, mixer, places))
    return with_stage_ends(result)


def _stages(model: nn.Module, flow: Flow, unknown: list[str]) -> tuple[Block, ...]:
    """Stages and layers with attention of a model whose blocks are not of the form x + attention, x + MLP."""
    height, width = flow.input("")[-2:]
    result = stage_blocks(model, flow, {"": blank_images(model, (height, width))})
    if result:
        return result
    if unknown:
        raise _adapter_error(
            model,
            f"{unknown[0]} has input shape {flow.input(unknown[0])}; expected a map of two images, or the tokens of an "
            f"earlier map with at most {_MAX_PREFIX} prefix tokens",
        )
    if softmax_modules(model, flow.inputs):
        raise _adapter_error(model, "its layers with attention return neither maps nor the tokens of an image")
    stages = (
        "none of the stages in its feature_info is one module that returns a map of two images"
        if getattr(model, "feature_info", None)
        else "it has no feature_info with the names of its stages"
    )
    raise _adapter_error(
        model, f"no softmax between tokens was recorded in its forward, so that it has no attention, and {stages}"
    )


def _adapter_error(model: nn.Module, reason: str) -> VitlabError:
    return VitlabError(
        f"no adapter supports {type(model).__name__}, and the generic adapter cannot describe it: {reason}; "
        "write an adapter, a file in vitlab/adapters with FAMILIES, CLASSES, ABSENT, family(model) and "
        "blocks(model, flow), that describes its blocks and token layouts (see timm_vit.py)"
    )


def _branches(module: nn.Module) -> tuple[str, str] | None:
    """The names of a block's attention and MLP children, or None if it does not have both."""
    names = {name for name, child in module.named_children() if not isinstance(child, nn.Identity)}
    attention = next((name for name in _ATTENTION if name in names), None)
    mlp = next((name for name in _MLP if name in names), None)
    return (attention, mlp) if attention and mlp else None


# -- token layouts ---------------------------------------------------------------------------------------------------


def _layout(model: nn.Module, flow: Flow, path: str, mlp: str) -> TokenLayout | None:
    """The layout of a block's input: a map, or the tokens of the last map before it; None if it is neither."""
    shape = flow.input(path)
    if len(shape) not in (3, 4) or shape[0] != flow.input("")[0]:
        return None
    is_map = len(shape) == 4
    return _as_map(model, flow, f"{path}.{mlp}", shape) if is_map else _as_tokens(model, flow, path, shape)


def _as_map(model: nn.Module, flow: Flow, mlp: str, shape: Shape) -> TokenLayout | None:
    """The layout of a map: its channel axis has the input width of the MLP's first layer."""
    layers = (m for m in model.get_submodule(mlp).modules() if isinstance(m, (nn.Linear, nn.Conv2d)))
    first = next(layers, None)
    if first is None:
        return None
    width = first.in_features if isinstance(first, nn.Linear) else first.in_channels
    _, a, b, c = shape
    channels_last = c == width and (a != width or isinstance(first, nn.Linear))
    layout = TokenLayout((a, b), order="BHWD") if channels_last else TokenLayout((b, c), order="BCHW")
    return layout if width in (a, c) and _fits(flow, layout.grid) else None


def _as_tokens(model: nn.Module, flow: Flow, path: str, shape: Shape) -> TokenLayout | None:
    """The layout of N tokens: those of the last earlier map with N cells, or a few fewer (prefix tokens)."""
    _, tokens, dim = shape
    layout = None
    for earlier, call in flow.calls.items():
        if earlier.startswith(f"{path}."):
            break
        if len(call.output) != 4 or call.output[0] != shape[0]:
            continue
        _, a, b, c = call.output
        channels_first = a == dim or isinstance(model.get_submodule(earlier), nn.Conv2d)
        h, w = (b, c) if channels_first else (a, b)
        if (channels_first or c == dim) and 0 <= tokens - h * w <= _MAX_PREFIX and _fits(flow, (h, w)):
            layout = TokenLayout((h, w), prefix=tokens - h * w)
    return layout


def _in_order(
    model: nn.Module, flow: Flow, layouts: dict[str, TokenLayout], halves: dict[str, tuple[str, str]]
) -> dict[str, TokenLayout]:
    """The layouts, with unknown order where a change of the image does not confirm row-major order."""
    images = blank_images(model, (flow.input("")[-2], flow.input("")[-1]))
    if images.is_meta:
        return layouts  # there are no values to compare
    branches = [f"{path}.{name}" for path, pair in halves.items() for name in pair]
    ordered = row_major(model, images, layouts, branches)
    return {path: layout if ordered[path] else replace(layout, permutation=()) for path, layout in layouts.items()}


def _fits(flow: Flow, grid: tuple[int, int]) -> bool:
    """Whether cells are about square, to exclude axes of windows or heads."""
    height, width = flow.input("")[-2:]
    high, wide = height / grid[0], width / grid[1]
    return 2 / 3 < high / wide < 3 / 2


# -- seams and mixers ------------------------------------------------------------------------------------------------


def _ends(model: nn.Module, flow: Flow, path: str, layout: TokenLayout) -> list[Seam]:
    """The seam `block.out`, if the block keeps the shape."""
    if isinstance(model.get_submodule(path), _CONTAINERS) or flow.input(path) != flow.output(path):
        return []
    return [flow.seam("block.out", path, "out", layout)]


def _inside(
    model: nn.Module, flow: Flow, path: str, attention: str, mlp: str, layout: TokenLayout, trial: Trial
) -> list[Seam]:
    """The seams around attention and MLP, if the trial confirmed that they are the block's two branches."""
    norm1, norm2 = (f"{path}.{trial.before(model, path, child)}" for child in (attention, mlp))
    attention, mlp = f"{path}.{attention}", f"{path}.{mlp}"
    parts = (path, norm1, attention, norm2, mlp)
    if norm1 == norm2 or not all(trial.hookable(part) for part in parts):
        return []
    shapes = {*(flow.input(part) for part in parts), flow.output(attention), flow.output(mlp)}
    if len(shapes) > 1 or not trial.is_identity(path, norm2):
        return []
    last = last_linear(model, flow, mlp)
    end = leaf(model, mlp, -1)
    middle = last is not None and trial.hookable(last) and torch.equal(trial.outputs[last], trial.outputs[end])
    parallel = trial.inputs[norm2] is trial.inputs[path]  # then there is no tensor between the halves
    return [
        flow.seam("block.in", path, "in", layout),
        flow.seam("attn.in", leaf(model, norm1, 0), "in", layout),
        flow.seam("attn.out", leaf(model, attention, -1), "out", layout),
        *([] if parallel else [flow.seam("block.mid", leaf(model, norm2, 0), "in", layout)]),
        flow.seam("mlp.in", leaf(model, mlp, 0), "in", layout),
        *([flow.seam("mlp.mid", str(last), "in", layout)] if middle else []),
        flow.seam("mlp.out", end, "out", layout),
    ]


def _mixer(model: nn.Module, flow: Flow, path: str, layout: TokenLayout, maps: list[Shape]) -> Mixer:
    """The attention, with its map if exactly one softmax over all tokens of an image was recorded."""
    modules = {f"{path}.{name}".rstrip("."): module for name, module in model.get_submodule(path).named_modules()}
    multihead = [name for name, module in modules.items() if isinstance(module, nn.MultiheadAttention)]
    images, tokens = flow.input("")[0], layout.tokens
    if len(multihead) == 1 and not maps[1:] and 1 in flow.input(multihead[0])[:2] and tokens > 1:
        return Mixer("class attention", path, why_no_map="one learned query attends to all tokens")
    if len(multihead) == 1 and not maps[1:] and sorted(flow.input(multihead[0])[:2]) == sorted((images, tokens)):
        return Mixer("attention", multihead[0], layout, layout)
    if len(maps) == 1 and (maps[0][0], *maps[0][-2:]) == (images, tokens, tokens):
        tokens_first = replace(layout, order="BND")
        return Mixer("attention", path, tokens_first, tokens_first)
    if len(maps) == 1 and maps[0][-2] == 1 < tokens:
        return Mixer("class attention", path, why_no_map="only one token is a query, and which one is not known")
    if not maps and not multihead:
        return Mixer("unknown", path, why_no_map="no softmax was recorded, so that it is not softmax attention")
    shapes = ", ".join(map(str, maps)) or "none"
    why = (
        f"no single softmax over its {tokens} tokens was recorded (recorded: {shapes}); an adapter can describe its map"
    )
    return Mixer("attention", path, why_no_map=why)
