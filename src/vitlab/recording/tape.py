"""Read a model in flight: `record` opens a tape, the model runs as it always does, the tape holds what passed.

Fused attention stays on and outputs stay bit-identical: features are read by hooks, and attention is heard as it
happens (`listening.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.adapters.wrappers import guard_hooks, unwrap
from vitlab.core.anatomy import SEAMS, TAPS, Anatomy, Block, Seam, TokenLayout
from vitlab.core.errors import VitlabError, unknown
from vitlab.recording.attention_call import AttentionCall
from vitlab.recording.attention_capture import in_backward, listen
from vitlab.recording.tokens import to_tokens

__all__ = ["Feature", "Tape", "record"]

Key = str | tuple[str, str]


@dataclass(frozen=True)
class Feature:
    """Tokens that passed a place of a block: (B, N, D) in full-map order, and how they lie."""

    block: str
    place: str
    tokens: Tensor
    layout: TokenLayout


_PLACES = {"features": ("block.out",), "branches": ("attn.out", "mlp.out")}


class Tape(Mapping[Key, Any]):
    """What was recorded, by block.

    `tape["blocks.3"]` is the attention map (B, H, N, M), windows folded into the batch, forwards one after the other;
    or, with a reducer, the list of what it returned. For features and branches `tape["blocks.3", "attn.out"]` is
    (B, N, D); the place may be left out where only one was recorded.
    """

    def __init__(self, what: str, anatomy: Anatomy, places: tuple[str, ...]) -> None:
        self.what, self.anatomy = what, anatomy
        self._places = places
        self._entries: dict[Key, list[Any]] = {}

    def calls(self, block: str) -> list[AttentionCall]:
        """The attention calls of a block, one for each forward."""
        return list(self._find(block))

    def clear(self) -> None:
        """Forget what was recorded; recording goes on."""
        for entry in self._entries.values():
            entry.clear()

    def __getitem__(self, key: Key) -> Any:
        entry = self._find(key)
        if isinstance(entry[0], AttentionCall):
            maps = [call.map() for call in entry]
            if len({map.shape[1:] for map in maps}) > 1:
                shapes = ", ".join(str(tuple(map.shape)) for map in maps)
                raise VitlabError(
                    f"the maps of {key!r} have different shapes ({shapes}); take them one by one from tape.calls"
                )
            return torch.cat(maps)
        return torch.cat(entry) if isinstance(entry[0], Tensor) and self.what != "attention" else list(entry)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _find(self, key: Key) -> list[Any]:
        if isinstance(key, str) and self.what != "attention" and len(self._places) == 1:
            key = (key, self._places[0])
        if key not in self._entries:
            name = key if isinstance(key, str) else key[0]
            block = self.anatomy.block(name)
            if self.what == "attention" and block.mixer.why_no_map:
                raise VitlabError(f"{name} has no token-token map: {block.mixer.why_no_map}")
            raise unknown("recording", key, [str(known) for known in self._entries])
        if not self._entries[key]:
            raise VitlabError(f"nothing was recorded for {key!r} yet; run the model inside the `with` block")
        return self._entries[key]


@contextmanager
def record(
    model: nn.Module,
    what: str = "attention",
    *,
    at: str | Sequence[str] | None = None,
    blocks: Sequence[str] | None = None,
    reduce: Callable[[Any], Any] | None = None,
    gradients: bool = False,
    input_size: int | tuple[int, int] | None = None,
    anatomy: Anatomy | None = None,
) -> Iterator[Tape]:
    """Record what passes through a model while the `with` block runs; nothing is left behind.

    Args:
        model: any model that `describe` can read, compiled or wrapped in DDP or not.
        what: `"attention"` (maps), `"features"` (the residual stream after each block) or `"branches"` (what attention
            and MLP add to it).
        at: for features and branches, other places: seams or taps such as `"block.mid"`.
        blocks: names of the blocks to listen to; all by default.
        reduce: called with each AttentionCall or Feature as it arrives; its results are kept instead, so that neither
            maps nor features need be stored.
        gradients: keep the graph, so that a loss on what was recorded can train the model.
        input_size: size of the images, where it is not the model's own.
        anatomy: what `describe` said of the model at this size, where it is known: the model need not run for it again.

    Yields:
        The Tape.
    """
    if what not in ("attention", *_PLACES):
        raise unknown("recording", what, ["attention", *_PLACES])
    places = _places(what, at)
    inner = unwrap(model)
    if gradients and _checkpoints(inner):
        raise VitlabError(
            "recorded gradients cannot pass gradient checkpointing (its second forward would not see the recorder); "
            "switch it off with model.set_grad_checkpointing(False) or model.gradient_checkpointing_disable()"
        )
    if anatomy is not None and input_size is not None:
        raise VitlabError("record got both anatomy and input_size; the anatomy says its size already")
    anatomy = anatomy or describe(inner, input_size)
    chosen = list(anatomy.blocks) if blocks is None else [anatomy.block(name) for name in blocks]
    tape = Tape(what, anatomy, places)
    keep = (lambda x: x) if gradients else torch.Tensor.detach
    with ExitStack() as stack:
        if what == "attention":
            listen(inner, chosen, tape._entries, keep, reduce, stack)
        else:
            _tap(inner, chosen, places, tape, keep, reduce, stack)
        guard_hooks()
        yield tape


# -- features and branches: hooks at taps and seams -----------------------------------------------------------------


def _places(what: str, at: str | Sequence[str] | None) -> tuple[str, ...]:
    if at is None:
        return _PLACES.get(what, ())
    if what == "attention":
        raise VitlabError("`at` chooses places for 'features' and 'branches'; attention is read where it happens")
    places = (at,) if isinstance(at, str) else tuple(at)
    known = [name for name in dict.fromkeys((*TAPS, *SEAMS)) if name != "attn"]
    for place in places:
        if place not in known:
            raise unknown("place", place, known)
    return places


def _tap(
    model: nn.Module,
    blocks: list[Block],
    places: tuple[str, ...],
    tape: Tape,
    keep: Callable[[Tensor], Tensor],
    reduce: Callable[[Feature], Any] | None,
    stack: ExitStack,
) -> None:
    for block in blocks:
        for place in places:
            tap = block.tap(place)
            if tap is None:
                continue
            entry = tape._entries.setdefault((block.name, place), [])
            module = model.get_submodule(tap.path)
            read = _reader(entry, block.name, tap, keep, reduce)
            if tap.side == "in":
                # The residual stream is what came in, before a part at the same place acted on its way to the branch.
                handle = module.register_forward_pre_hook(read, prepend=tap in block.taps)
            else:
                handle = module.register_forward_hook(read)
            stack.callback(handle.remove)


def _reader(
    entry: list[Any], block: str, tap: Seam, keep: Callable[[Tensor], Tensor], reduce: Callable[[Feature], Any] | None
) -> Callable[..., None]:
    """A hook of either side: the last thing that it is given, arguments or output, holds the tokens."""

    def read(module: nn.Module, *given: Any) -> None:
        if in_backward():
            return
        passed = given[-1][0] if isinstance(given[-1], tuple) else given[-1]
        tokens = to_tokens(keep(passed), tap.layout)
        entry.append(tokens if reduce is None else reduce(Feature(block, tap.name, tokens, tap.layout)))

    return read


def _checkpoints(model: nn.Module) -> bool:
    return any(
        getattr(module, "grad_checkpointing", False) or getattr(module, "gradient_checkpointing", False)
        for module in model.modules()
    )
