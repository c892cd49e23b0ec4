"""Record attention maps and features while a model runs: `record` is a context manager that yields a `Tape`.

Fused attention stays enabled and outputs are bit-identical. Features are captured by hooks, attention by
`attention_capture`.
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
from vitlab.core.settings import check_value
from vitlab.recording.attention_call import AttentionCall
from vitlab.recording.attention_capture import capture_attention, in_backward
from vitlab.recording.tokens import first_of, to_tokens

__all__ = ["Feature", "Tape", "record"]

Key = str | tuple[str, str]


@dataclass(frozen=True)
class Feature:
    """The tokens at one place (seam or tap) of a block: (B, N, D) in full-map order, with their layout."""

    block: str
    place: str
    tokens: Tensor
    layout: TokenLayout


_PLACES = {"features": ("block.out",), "branches": ("attn.out", "mlp.out")}


class Tape(Mapping[Key, Any]):
    """The recorded values by block.

    `tape["blocks.3"]` is the attention map (B, H, N, M), windows folded into the batch, forwards concatenated;
    or, with `reduce`, the list of its results. For features and branches `tape["blocks.3", "attn.out"]` is
    (B, N, D); the place may be omitted if only one was recorded.
    """

    def __init__(self, what: str, anatomy: Anatomy, places: tuple[str, ...]) -> None:
        self.what, self.anatomy = what, anatomy
        self._places = places
        self._entries: dict[Key, list[Any]] = {}

    def calls(self, block: str) -> list[AttentionCall]:
        """The attention calls of a block, one per forward."""
        return list(self._entry(block))

    def self_attention(self) -> list[AttentionCall]:
        """The attention calls of all blocks whose tokens attend to each other; class attention is left out."""
        blocks = [block for block in self.anatomy.blocks if block.mixer.queries is not None]
        names = [block.name for block in blocks if block.mixer.kind != "class attention"]
        return [call for name in names for call in self.calls(name)]

    def clear(self) -> None:
        """Delete the recorded values; recording continues."""
        for entry in self._entries.values():
            entry.clear()

    def __getitem__(self, key: Key) -> Any:
        entry = self._entry(key)
        if isinstance(entry[0], AttentionCall):
            maps = [call.map() for call in entry]
            if len({map.shape[1:] for map in maps}) > 1:
                shapes = ", ".join(str(tuple(map.shape)) for map in maps)
                raise VitlabError(
                    f"the maps of {key!r} have different shapes ({shapes}); expected one shape; use tape.calls({key!r})"
                )
            return torch.cat(maps)
        return torch.cat(entry) if isinstance(entry[0], Tensor) and self.what != "attention" else list(entry)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _entry(self, key: Key) -> list[Any]:
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
    """Record attention or features of a model inside a `with` block; all hooks are removed on exit.

    Args:
        model: any model that `describe` supports; it may be compiled or wrapped in DDP.
        what: `"attention"` (maps), `"features"` (the residual stream after each block) or `"branches"` (the
            outputs of attention and MLP that are added to it).
        at: for features and branches, other places to record: seams or taps such as `"block.mid"`.
        blocks: names of the blocks to record. Default: all.
        reduce: called with each AttentionCall or Feature; its result is stored instead, so that maps and features need
            not be held in memory.
        gradients: keep the autograd graph, so that a loss on the recorded values can train the model.
        input_size: size of the images. Default: the model's input size.
        anatomy: result of `describe` for this model and size, if already computed; saves a forward.

    Yields:
        The Tape.
    """
    check_value("record", "what", what, str)
    check_value("record", "at", at, str | Sequence[str] | None)
    check_value("record", "blocks", blocks, Sequence[str] | None)
    if what not in ("attention", *_PLACES):
        raise unknown("recording", what, ["attention", *_PLACES])
    places = _places(what, at)
    inner = unwrap(model)
    if gradients and uses_gradient_checkpointing(inner):
        raise VitlabError(
            "gradients=True does not work with gradient checkpointing (its second forward runs without the hooks); "
            "disable it with model.set_grad_checkpointing(False) or model.gradient_checkpointing_disable()"
        )
    if anatomy is not None and input_size is not None:
        raise VitlabError(
            "record got both anatomy and input_size; expected one of them, because an anatomy has an input size"
        )
    anatomy = anatomy or describe(inner, input_size)
    chosen = list(anatomy.blocks) if blocks is None else [anatomy.block(name) for name in blocks]
    tape = Tape(what, anatomy, places)
    keep = (lambda x: x) if gradients else torch.Tensor.detach
    with ExitStack() as stack:
        if what == "attention":
            capture_attention(inner, chosen, tape._entries, keep, reduce, stack)
        else:
            _capture_features(inner, chosen, places, tape, keep, reduce, stack)
        guard_hooks()
        yield tape


# -- features and branches: hooks at taps and seams -----------------------------------------------------------------


def _places(what: str, at: str | Sequence[str] | None) -> tuple[str, ...]:
    if at is None:
        return _PLACES.get(what, ())
    if what == "attention":
        raise VitlabError(
            f"invalid at={at!r} with what='attention'; `at` selects places of 'features' and 'branches'; omit it"
        )
    places = (at,) if isinstance(at, str) else tuple(at)
    known = [name for name in dict.fromkeys((*TAPS, *SEAMS)) if name != "attn"]
    for place in places:
        if place not in known:
            raise unknown("place", place, known)
    return places


def _capture_features(
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
            hook = _feature_hook(entry, block.name, tap, keep, reduce)
            if tap.side == "in":
                # Prepended: the residual stream is recorded before a part at the same place changes the branch's input.
                handle = module.register_forward_pre_hook(hook, prepend=tap in block.taps)
            else:
                handle = module.register_forward_hook(hook)
            stack.callback(handle.remove)


def _feature_hook(
    entry: list[Any], block: str, tap: Seam, keep: Callable[[Tensor], Tensor], reduce: Callable[[Feature], Any] | None
) -> Callable[..., None]:
    """A forward (pre-)hook. Its last argument, inputs or output, holds the tokens."""

    def hook(module: nn.Module, *given: Any) -> None:
        if in_backward():
            return
        tokens = to_tokens(keep(first_of(given[-1])), tap.layout)
        entry.append(tokens if reduce is None else reduce(Feature(block, tap.name, tokens, tap.layout)))

    return hook


def uses_gradient_checkpointing(model: nn.Module) -> bool:
    """Whether a model of timm or Hugging Face, or one of its modules, has gradient checkpointing enabled."""
    return any(
        getattr(module, "grad_checkpointing", False) or getattr(module, "gradient_checkpointing", False)
        for module in model.modules()
    )
