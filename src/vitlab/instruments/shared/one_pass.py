"""One pass over the data for several instruments: each attention map and feature is computed once and shared."""

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
from vitlab.kernels.attention_statistics import Wanted
from vitlab.recording.attention_call import AttentionCall, Rows
from vitlab.recording.tape import Feature, record


@dataclass(frozen=True)
class Result:
    """Result of an observer: arrays, the names of their axes, the labels of these axes, and pooling rules."""

    values: Mapping[str, np.ndarray]
    dims: Mapping[str, tuple[str, ...]]
    axes: Mapping[str, tuple[Any, ...]]
    pooling: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Observer:
    """Callbacks of a pass over the data. Subclasses override those that they need.

    Attributes:
        kind: name of the instrument.
        settings: its settings.
        places: taps and seams whose features are passed to `feature`.
        attention: `"rows"` for the rows of each attention map, computed once for all observers; `"calls"` for the
            attention calls (queries and keys) without maps.
    """

    kind: str
    settings: Mapping[str, Any] = {}
    places: tuple[str, ...] = ()
    attention: Literal["", "rows", "calls"] = ""

    def begin(self, anatomy: Anatomy) -> None:
        """Called once before the first batch; raises an error if the model cannot be measured."""

    def call(self, block: Block, call: AttentionCall) -> None:
        """Called with each attention call of a block if `attention` is `calls`."""

    def rows(self, block: Block, call: AttentionCall, rows: Rows) -> None:
        """Called with some rows of an attention map, windows folded into the batch, if `attention` is `rows`."""

    def wanted(self, block: Block, call: AttentionCall) -> Wanted | None:
        """The statistics of `attention_statistics` that replace the rows of this map; None if rows are needed."""
        return None

    def streamed(self, block: Block, call: AttentionCall, statistics: Mapping[str, Tensor]) -> None:
        """Called instead of `rows` with the statistics, if a kernel computes those of all observers."""

    def feature(self, block: Block, feature: Feature) -> None:
        """Called with the tokens at one of `places`."""

    def end_batch(self) -> None:
        """Called after the forward of each batch."""

    def result(self, anatomy: Anatomy) -> Result:
        """Called after the last batch; returns the result."""
        raise NotImplementedError


def observe(model: nn.Module, batches: Iterable[Any], observers: Sequence[Observer]) -> list[Measurement]:
    """Run a model once over the batches and call all observers.

    The model runs in evaluation mode without gradients; its state is restored afterwards.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    total = length_hint(batches) or None  # before the first batch is consumed
    items = iter(batches)
    inputs = _inputs(next(items, None), device)
    size, count = _size(inputs), 0
    end = object()
    with eval_mode(model), ExitStack() as stack:
        anatomy = _attach(model, observers, size, stack)
        for observer in observers:
            observer.begin(anatomy)
        while True:
            model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
            with _without_recording():
                for observer in observers:
                    observer.end_batch()
            count += len(_pixels(inputs))
            report_done(f"{count} images", total)
            item = next(items, end)
            if item is end:
                break
            inputs = _inputs(item, device, size)
    about = provenance(device=str(device), images=count, data=getattr(batches, "fingerprint", ""))
    results = [(observer, observer.result(anatomy)) for observer in observers]
    subject = type(model).__name__
    return [
        Measurement(observer.kind, subject, r.values, r.dims, r.axes, dict(observer.settings), about, pooling=r.pooling)
        for observer, r in results
    ]


def attention_blocks(anatomy: Anatomy, kind: str) -> list[Block]:
    """The blocks with attention maps, without class attention; raise an error if there are none."""
    blocks = [b for b in anatomy.blocks if b.mixer.queries is not None and b.mixer.kind != "class attention"]
    if not blocks:
        reasons = dict.fromkeys(b.mixer.why_no_map for b in anatomy.blocks if b.mixer.why_no_map)
        why = f": {'; '.join(reasons)}" if reasons else ""
        raise VitlabError(f"{kind} needs attention maps; family {anatomy.family!r} has none{why}")
    return blocks


def table(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Stack rows of different lengths (layers with different numbers of heads), padded with NaN."""
    width = max(len(row) for row in rows)
    return np.stack([np.pad(row, (0, width - len(row)), constant_values=np.nan) for row in rows])


def _attach(model: nn.Module, observers: Sequence[Observer], size: tuple[int, int], stack: ExitStack) -> Anatomy:
    """Record attention and features for the observers; the tapes store nothing."""
    anatomy = describe(model, size)
    blocks = {block.name: block for block in anatomy.blocks}
    call_observers, row_observers = (
        [observer for observer in observers if observer.attention == how] for how in ("calls", "rows")
    )
    places = tuple(dict.fromkeys(place for observer in observers for place in observer.places))

    def on_attention(call: AttentionCall) -> None:
        with _without_recording():
            for observer in call_observers:
                observer.call(blocks[call.block], call)
            if not row_observers or _stream(blocks[call.block], call, row_observers):
                return
            for rows in call.rows():
                for observer in row_observers:
                    observer.rows(blocks[call.block], call, rows)
                del rows  # free memory before the next chunk is computed

    def on_feature(feature: Feature) -> None:
        with _without_recording():
            for observer in observers:
                if feature.place in observer.places:
                    observer.feature(blocks[feature.block], feature)

    if call_observers or row_observers:
        stack.enter_context(record(model, "attention", reduce=on_attention, anatomy=anatomy))
    if places:
        stack.enter_context(record(model, "features", at=places, reduce=on_feature, anatomy=anatomy))
    return anatomy


def _stream(block: Block, call: AttentionCall, observers: Sequence[Observer]) -> bool:
    """Pass statistics instead of rows to all observers; returns False if one needs rows, or there is no kernel."""
    wanted: dict[str, tuple[Tensor, Tensor] | None] = {}
    for observer in observers:
        own = observer.wanted(block, call)
        if own is None:
            return False
        wanted |= own
    statistics = call.streamed(wanted)
    for observer in observers if statistics is not None else ():
        observer.streamed(block, call, statistics or {})
    return statistics is not None


def _without_recording() -> AbstractContextManager[None]:
    """Disable attention capture for the operations of instruments; otherwise it intercepts each of them."""
    return nullcontext() if torch.compiler.is_compiling() else torch._C.DisableTorchFunction()


Inputs = Tensor | Mapping[str, Tensor]


def _inputs(item: Any, device: torch.device, size: tuple[int, int] | None = None) -> Inputs:
    """The images of a batch, or all keyword arguments of a model that takes more than images, on the device."""
    inputs = item[0] if isinstance(item, (tuple, list)) else item
    images = _pixels(inputs) if isinstance(inputs, Mapping) and "pixel_values" in inputs else inputs
    if not isinstance(images, Tensor) or images.ndim != 4 or not len(images):
        raise VitlabError(
            "invalid batch; an instrument needs batches of images of shape (B, C, h, w) with at least one image"
        )
    if size is not None and tuple(images.shape[-2:]) != size:
        current, first = ("x".join(map(str, sides)) for sides in (images.shape[-2:], size))
        raise VitlabError(f"a batch of {current} images came after one of {first}; measure each image size separately")
    if isinstance(inputs, Mapping):
        return {name: tensor.to(device) for name, tensor in inputs.items()}
    return images.to(device)


def _pixels(inputs: Inputs) -> Tensor:
    return inputs["pixel_values"] if isinstance(inputs, Mapping) else inputs


def _size(inputs: Inputs) -> tuple[int, int]:
    height, width = _pixels(inputs).shape[-2:]
    return int(height), int(width)
