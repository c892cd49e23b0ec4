"""Remove single units (MSA, MLP or Conv) of a model with forward hooks; weights are not changed.

- MSA and MLP: the residual branch is set to 0 at the seams `attn.out` and `mlp.out`. If a norm follows (Swin-V2), its
  output for 0 would be its bias; then the output of the norm is set to 0 instead. One forward on one image with all
  branches removed decides between the two: the residual stream must be unchanged.
- Conv: a k×k convolution with equal numbers of input and output channels is replaced by the identity; with stride s,
  by subsampling every s-th point. With `conv="block"`, the whole block is replaced by the identity.

Shape legend: B batch, C channels, h w grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from vitlab.adapters.flow import run_on, zero_output
from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.errors import unknown
from vitlab.interventions.hooks import Hook, hooked
from vitlab.recording.tape import Feature, record

Conv = Literal["kernel", "block"]

_BRANCHES = {"MSA": ("attn.out", "block.in", "block.mid"), "MLP": ("mlp.out", "block.mid", "block.out")}


@dataclass(frozen=True)
class Unit:
    """A removable unit: name, block, kind, path of the module whose output is replaced, and the replacing hook."""

    name: str
    block: Block
    kind: str
    path: str
    hook: Hook


def units(
    model: nn.Module, anatomy: Anatomy, images: Tensor | Mapping[str, Tensor], conv: Conv = "kernel"
) -> list[Unit]:
    """All removable units, in execution order.

    Args:
        model: the model, in evaluation mode, without wrappers.
        anatomy: its description at the image size.
        images: (B, C, h, w), or the inputs by name, as `inputs_of` returns them; only the first image is used.
        conv: unit of convolutional blocks: `"kernel"`, each convolution; or `"block"`, the whole block.
    """
    if conv not in get_args(Conv):
        raise unknown("conv of lesion", conv, get_args(Conv))
    convolutions: list[Unit] = []
    for block in anatomy.blocks:
        if block.mixer.kind == "conv":
            whole = conv == "block" and block.tap("block.mid") is None
            convolutions += _whole_block(block) if whole else _kernels(model, block)
    given = {"": images} if isinstance(images, Tensor) else images
    first = {name: tensor[:1] for name, tensor in given.items()}
    removable = [*_same_shape(model, convolutions, first), *_branches(model, anatomy, first)]
    return sorted(removable, key=lambda unit: unit.block.index)


@contextmanager
def removed(model: nn.Module, *chosen: Unit) -> Iterator[None]:
    """Temporarily remove units from the model; they are restored on exit."""
    with ExitStack() as stack:
        for unit in chosen:
            stack.enter_context(hooked(model, unit.path, unit.hook))
        yield


def pass_input(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """Forward hook that replaces the output by the input; for a module of stride s, by every s-th point of it.

    >>> x = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> pass_input(nn.Conv2d(1, 1, 3, stride=2, padding=1), (x,), x).flatten()
    tensor([0., 2., 6., 8.])
    """
    down, right = module.stride if isinstance(module, nn.Conv2d) else (1, 1)
    return arguments[0][..., ::down, ::right] if down * right > 1 else arguments[0]


# -- branches ---------------------------------------------------------------------------------------------------------


def _branches(model: nn.Module, anatomy: Anatomy, inputs: Mapping[str, Tensor]) -> list[Unit]:
    """MSA and MLP units, each with its first candidate that leaves the stream unchanged, else the seam itself."""
    candidates = {}
    for block in anatomy.blocks:
        for kind, (name, *_) in _BRANCHES.items():
            seam = block.seam(name)
            if seam is not None and (block.mixer.kind != "conv" or block.tap("block.mid")):
                unit = Unit(f"{block.name} {kind}", block, kind, seam.path, zero_output)
                candidates[unit.name] = [unit, *(replace(unit, path=path) for path in _norms(model, seam.path))]
    resolved: dict[str, Unit | None] = {}
    for attempt in range(max(map(len, candidates.values()), default=0)):
        trial = {
            name: options[min(attempt, len(options) - 1)]
            for name, options in candidates.items()
            if name not in resolved
        }
        if not trial:
            break
        state = _stream(model, anatomy, inputs, [*trial.values(), *(unit for unit in resolved.values() if unit)])
        for name, unit in trial.items():
            if state[name] == "unchanged" or (attempt == 0 and state[name] == "zero"):
                resolved[name] = unit if state[name] == "unchanged" else None
    chosen = [resolved.get(name, options[0]) for name, options in candidates.items()]
    return [unit for unit in chosen if unit is not None]


def _norms(model: nn.Module, path: str) -> list[str]:
    """Paths of the norms with the same parent module; one of them may normalise the module's output."""
    parent = path.rpartition(".")[0]
    siblings = model.get_submodule(parent).named_children()
    names = [f"{parent}.{name}".lstrip(".") for name, child in siblings if "norm" in type(child).__name__.lower()]
    return [name for name in names if name != path]


def _stream(
    model: nn.Module, anatomy: Anatomy, inputs: Mapping[str, Tensor], branches: Sequence[Unit]
) -> dict[str, str]:
    """Effect of each removed branch on the stream: `unchanged`, `zero` (there is no skip path) or `changed`.

    The result is also `changed` if the skip path modifies the tokens (pooling), or if the stream cannot be recorded
    before or after the branch.
    """
    streams: dict[tuple[str, str], Tensor] = {}

    def store(feature: Feature) -> None:
        streams[feature.block, feature.place] = feature.tokens

    at = ("block.in", "block.mid", "block.out")
    with record(model, "features", at=at, reduce=store, anatomy=anatomy), removed(model, *branches):
        run_on(model, inputs)
    return {unit.name: _compare(*(streams.get(place) for place in _ends(unit))) for unit in branches}


def _ends(unit: Unit) -> tuple[tuple[str, str], tuple[str, str]]:
    """Block name and tap of the stream before and after a unit."""
    _, before, after = _BRANCHES[unit.kind]
    if unit.block.tap("block.mid") is None:
        before, after = "block.in", "block.out"
    return (unit.block.name, before), (unit.block.name, after)


def _compare(before: Tensor | None, after: Tensor | None) -> str:
    if before is None or after is None:
        return "changed"
    if not after.any() and before.any():
        return "zero"
    return "unchanged" if before.shape == after.shape and torch.equal(before, after) else "changed"


# -- convolutions -----------------------------------------------------------------------------------------------------


def _kernels(model: nn.Module, block: Block) -> list[Unit]:
    """The k×k convolutions of a block, k > 1, with equal numbers of input and output channels."""
    modules = model.get_submodule(block.mixer.path).named_modules(prefix=block.mixer.path)
    convolutions = [
        path
        for path, module in modules
        if isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1 and module.in_channels == module.out_channels
    ]
    return [Unit(f"{path} Conv", block, "Conv", path, pass_input) for path in convolutions if ".vitlab_" not in path]


def _whole_block(block: Block) -> list[Unit]:
    """A convolutional block as one unit; empty if the block is not a single module."""
    start, end = block.tap("block.in"), block.tap("block.out")
    if start is None or end is None or start.path != end.path:
        return []
    return [Unit(f"{block.name} Conv", block, "Conv", end.path, pass_input)]


def _same_shape(model: nn.Module, candidates: Sequence[Unit], inputs: Mapping[str, Tensor]) -> list[Unit]:
    """The units whose replacement has the shape of their output."""
    matches: dict[str, bool] = {}
    if not candidates:
        return []

    def compare_shapes(unit: Unit) -> Hook:
        def hook(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            matches[unit.name] = pass_input(module, arguments, output).shape == output.shape

        return hook

    with removed(model, *(replace(unit, hook=compare_shapes(unit)) for unit in candidates)):
        run_on(model, inputs)
    return [unit for unit in candidates if matches.get(unit.name)]
