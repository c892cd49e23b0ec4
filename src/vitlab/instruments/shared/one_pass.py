"""One pass over the data for several instruments: each map and each feature is made once and shown to all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from operator import length_hint
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.provenance import provenance
from vitlab.core.step_cache import report_done
from vitlab.eval_mode import eval_mode
from vitlab.recording.attention_call import AttentionCall, Rows
from vitlab.recording.tape import Feature, record


@dataclass(frozen=True)
class Result:
    """What an observer found: arrays, the names of their axes, the labels along these, and how parts are pooled."""

    values: Mapping[str, np.ndarray]
    dims: Mapping[str, tuple[str, ...]]
    axes: Mapping[str, tuple[Any, ...]]
    pooling: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Observer:
    """Watches a pass. Subclasses override what they need.

    `kind` is the instrument's name, `settings` what it was told, `places` the taps and seams whose features it wants,
    and `attention` how it wants attention: the `rows` of each map, which are made once for all who want them, or the
    `calls` themselves, queries and keys, where it needs no map.
    """

    kind: str
    settings: Mapping[str, Any] = {}
    places: tuple[str, ...] = ()
    attention: Literal["", "rows", "calls"] = ""

    def begin(self, anatomy: Anatomy) -> None:
        """Called once, before the first batch; refuse here what cannot be measured."""

    def call(self, block: Block, call: AttentionCall) -> None:
        """One attention call of a block, where `attention` is `calls`."""

    def rows(self, block: Block, call: AttentionCall, rows: Rows) -> None:
        """Some rows of an attention map, windows folded into the batch."""

    def feature(self, block: Block, feature: Feature) -> None:
        """Tokens that passed one of `places`."""

    def after(self) -> None:
        """The model has seen a batch."""

    def result(self, anatomy: Anatomy) -> Result:
        """What was found, after the last batch."""
        raise NotImplementedError


def observe(model: nn.Module, batches: Iterable[Any], observers: Sequence[Observer]) -> list[Measurement]:
    """Run a model once over the batches and show what passes to all observers.

    The model runs in evaluation mode, without gradients, and is left as it was found.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    total = length_hint(batches) or None  # before the first is taken
    items = iter(batches)
    images = _images(next(items, None), device)
    size, count = (int(images.shape[-2]), int(images.shape[-1])), 0
    end = object()
    with eval_mode(model), ExitStack() as stack:
        anatomy = _listen(model, observers, size, stack)
        for observer in observers:
            observer.begin(anatomy)
        while True:
            model(images)
            with _unobserved():
                for observer in observers:
                    observer.after()
            count += len(images)
            report_done(f"{count} images", total)
            item = next(items, end)
            if item is end:
                break
            images = _images(item, device, size)
    about = provenance(device=str(device), images=count, data=getattr(batches, "fingerprint", ""))
    found = [(observer, observer.result(anatomy)) for observer in observers]
    subject = type(model).__name__
    return [
        Measurement(one.kind, subject, r.values, r.dims, r.axes, dict(one.settings), about, pooling=r.pooling)
        for one, r in found
    ]


def attention_blocks(anatomy: Anatomy, kind: str) -> list[Block]:
    """The blocks that have a map, class attention left out; an error where there are none."""
    blocks = [b for b in anatomy.blocks if b.mixer.queries is not None and b.mixer.kind != "class attention"]
    if not blocks:
        reasons = dict.fromkeys(b.mixer.why_no_map for b in anatomy.blocks if b.mixer.why_no_map)
        why = f": {'; '.join(reasons)}" if reasons else ""
        raise VitlabError(f"{kind} needs attention maps, and family {anatomy.family!r} has none{why}")
    return blocks


def table(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of different lengths (layers with different numbers of heads) as one array, filled with NaN."""
    width = max(len(row) for row in rows)
    return np.stack([np.pad(row, (0, width - len(row)), constant_values=np.nan) for row in rows])


def _listen(model: nn.Module, observers: Sequence[Observer], size: tuple[int, int], stack: ExitStack) -> Anatomy:
    """Open the tapes that the observers need; nothing is kept on them."""
    anatomy = describe(model, size)
    blocks = {block.name: block for block in anatomy.blocks}
    of_calls, of_rows = ([one for one in observers if one.attention == how] for how in ("calls", "rows"))
    places = tuple(dict.fromkeys(place for observer in observers for place in observer.places))

    def show_map(call: AttentionCall) -> None:
        with _unobserved():
            for observer in of_calls:
                observer.call(blocks[call.block], call)
            for rows in call.rows() if of_rows else ():
                for observer in of_rows:
                    observer.rows(blocks[call.block], call, rows)
                del rows  # before the next piece is made

    def show_feature(feature: Feature) -> None:
        with _unobserved():
            for observer in observers:
                if feature.place in observer.places:
                    observer.feature(blocks[feature.block], feature)

    if of_calls or of_rows:
        stack.enter_context(record(model, "attention", reduce=show_map, anatomy=anatomy))
    if places:
        stack.enter_context(record(model, "features", at=places, reduce=show_feature, anatomy=anatomy))
    return anatomy


def _unobserved() -> AbstractContextManager[None]:
    """Keeps what instruments compute from the recorder of attention, which else looks at every operation."""
    return nullcontext() if torch.compiler.is_compiling() else torch._C.DisableTorchFunction()


def _images(item: Any, device: torch.device, size: tuple[int, int] | None = None) -> Tensor:
    images = item[0] if isinstance(item, (tuple, list)) else item
    if not isinstance(images, Tensor) or images.ndim != 4 or not len(images):
        raise VitlabError("an instrument needs batches of images of shape (B, C, h, w), and at least one image")
    if size is not None and tuple(images.shape[-2:]) != size:
        given, first = ("x".join(map(str, sides)) for sides in (images.shape[-2:], size))
        raise VitlabError(f"a batch of {given} images came after one of {first}; measure other sizes apart")
    return images.to(device)
