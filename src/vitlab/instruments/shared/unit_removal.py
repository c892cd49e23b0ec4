"""Which units of a model can be removed, one MSA, MLP or Conv at a time, and how; no weight is changed.

- MSA and MLP: what they add to the residual stream is set to 0, at the seams `attn.out` and `mlp.out`. Where a norm
  follows (Swin-V2), 0 would come out of it as its bias: then the norm's output is set to 0 instead. One forward on one
  image, with all branches cut, shows which it is: the stream must pass unchanged.
- Conv: a k×k convolution with as many channels out as in passes its input on, as a kernel with a single 1 in its
  centre would; one with a stride passes every s-th point. Or, as a setting, the whole block passes its input on.

Shape legend: B batch, C channels, h w grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from vitlab.adapters.wrappers import guard_hooks
from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.errors import unknown
from vitlab.recording.tape import Feature, record

Conv = Literal["kernel", "block"]
Hook = Callable[[nn.Module, Any, Any], Any]

_BRANCHES = {"MSA": ("attn.out", "block.in", "block.mid"), "MLP": ("mlp.out", "block.mid", "block.out")}


@dataclass(frozen=True)
class Unit:
    """One unit: its name, the block and stage that it stands in, and the module whose output is replaced by what."""

    name: str
    block: Block
    kind: str
    path: str
    hook: Hook


def units(model: nn.Module, anatomy: Anatomy, images: Tensor, conv: Conv = "kernel") -> list[Unit]:
    """All units that can be removed, in execution order.

    Args:
        model: the model, in evaluation mode, without wrappers.
        anatomy: its description at the size of the images.
        images: (B, C, h, w); only the first is used.
        conv: what a unit is in a block of convolutions: `"kernel"`, each of its convolutions; or `"block"`, all of it.
    """
    if conv not in get_args(Conv):
        raise unknown("conv of lesion", conv, get_args(Conv))
    convolutions: list[Unit] = []
    for block in anatomy.blocks:
        if block.mixer.kind == "conv":
            whole = conv == "block" and block.tap("block.mid") is None
            convolutions += _whole(block) if whole else _kernels(model, block)
    found = [*_fitting(model, convolutions, images[:1]), *_branches(model, anatomy, images[:1])]
    return sorted(found, key=lambda unit: unit.block.index)


@contextmanager
def removed(model: nn.Module, *chosen: Unit) -> Iterator[None]:
    """The model without these units; they are back afterwards."""
    guard_hooks()
    with ExitStack() as stack:
        for unit in chosen:
            stack.callback(model.get_submodule(unit.path).register_forward_hook(unit.hook).remove)
        yield


def zero(module: nn.Module, arguments: Any, output: Any) -> Any:
    """A hook: 0 instead of the output.

    >>> zero(nn.Identity(), (), torch.ones(2))
    tensor([0., 0.])
    """
    if isinstance(output, tuple):
        return torch.zeros_like(output[0]), *output[1:]
    return torch.zeros_like(output)


def pass_input(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """A hook: the input instead of the output, every s-th point of it where the module has a stride s.

    >>> x = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> pass_input(nn.Conv2d(1, 1, 3, stride=2, padding=1), (x,), x).flatten()
    tensor([0., 2., 6., 8.])
    """
    down, right = module.stride if isinstance(module, nn.Conv2d) else (1, 1)
    return arguments[0][..., ::down, ::right] if down * right > 1 else arguments[0]


# -- branches ---------------------------------------------------------------------------------------------------------


def _branches(model: nn.Module, anatomy: Anatomy, image: Tensor) -> list[Unit]:
    """MSA and MLP units, each with the first of its candidates that lets the stream pass unchanged, else the seam."""
    candidates = {}
    for block in anatomy.blocks:
        for kind, (name, *_) in _BRANCHES.items():
            seam = block.seam(name)
            if seam is not None and (block.mixer.kind != "conv" or block.tap("block.mid")):
                unit = Unit(f"{block.name} {kind}", block, kind, seam.path, zero)
                candidates[unit.name] = [unit, *(replace(unit, path=path) for path in _norms(model, seam.path))]
    settled: dict[str, Unit | None] = {}
    for attempt in range(max(map(len, candidates.values()), default=0)):
        trial = {name: those[min(attempt, len(those) - 1)] for name, those in candidates.items() if name not in settled}
        if not trial:
            break
        state = _stream(model, anatomy, image, [*trial.values(), *(unit for unit in settled.values() if unit)])
        for name, unit in trial.items():
            if state[name] == "unchanged" or (attempt == 0 and state[name] == "gone"):
                settled[name] = unit if state[name] == "unchanged" else None
    chosen = [settled.get(name, those[0]) for name, those in candidates.items()]
    return [unit for unit in chosen if unit is not None]


def _norms(model: nn.Module, path: str) -> list[str]:
    """Norms beside a module: one of them may act on what it adds to the stream."""
    parent = path.rpartition(".")[0]
    beside = model.get_submodule(parent).named_children()
    names = [f"{parent}.{name}".lstrip(".") for name, child in beside if "norm" in type(child).__name__.lower()]
    return [name for name in names if name != path]


def _stream(model: nn.Module, anatomy: Anatomy, image: Tensor, cut: Sequence[Unit]) -> dict[str, str]:
    """With these branches cut, what each does to the stream: `unchanged`, `gone` (there is no skip path) or `changed`.

    `changed` is also said where the skip path itself changes the tokens (pooling), and where one end cannot be read.
    """
    streams: dict[tuple[str, str], Tensor] = {}

    def note(feature: Feature) -> None:
        streams[feature.block, feature.place] = feature.tokens

    at = ("block.in", "block.mid", "block.out")
    with record(model, "features", at=at, reduce=note, anatomy=anatomy), removed(model, *cut):
        model(image)
    return {unit.name: _compare(*(streams.get(place) for place in _ends(unit))) for unit in cut}


def _ends(unit: Unit) -> tuple[tuple[str, str], tuple[str, str]]:
    """Where the stream can be read before and after a unit."""
    _, before, after = _BRANCHES[unit.kind]
    if unit.block.tap("block.mid") is None:
        before, after = "block.in", "block.out"
    return (unit.block.name, before), (unit.block.name, after)


def _compare(before: Tensor | None, after: Tensor | None) -> str:
    if before is None or after is None:
        return "changed"
    if not after.any() and before.any():
        return "gone"
    return "unchanged" if before.shape == after.shape and torch.equal(before, after) else "changed"


# -- convolutions -----------------------------------------------------------------------------------------------------


def _kernels(model: nn.Module, block: Block) -> list[Unit]:
    """The k×k convolutions of a block, k > 1, that have as many channels out as in."""
    modules = model.get_submodule(block.mixer.path).named_modules(prefix=block.mixer.path)
    convolutions = [
        path
        for path, module in modules
        if isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1 and module.in_channels == module.out_channels
    ]
    return [Unit(f"{path} Conv", block, "Conv", path, pass_input) for path in convolutions if ".vitlab_" not in path]


def _whole(block: Block) -> list[Unit]:
    """A block of convolutions that is a module of its own."""
    start, end = block.tap("block.in"), block.tap("block.out")
    if start is None or end is None or start.path != end.path:
        return []
    return [Unit(f"{block.name} Conv", block, "Conv", end.path, pass_input)]


def _fitting(model: nn.Module, candidates: Sequence[Unit], image: Tensor) -> list[Unit]:
    """Those units whose input has the shape of the output that it would replace."""
    fits: dict[str, bool] = {}
    if not candidates:
        return []

    def look(unit: Unit) -> Hook:
        def hook(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            fits[unit.name] = pass_input(module, arguments, output).shape == output.shape

        return hook

    with removed(model, *(replace(unit, hook=look(unit)) for unit in candidates)):
        model(image)
    return [unit for unit in candidates if fits.get(unit.name)]
