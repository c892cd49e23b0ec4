"""A logit lens: what each block's output would already predict, read by the model's own last norm, pooling and head.

The lens of language models (nostalgebraist, "interpreting GPT: the logit lens", 2020) needs to know where a model keeps
its norm and its head. Here the model itself does: where the last block hands on its output, the outputs of all blocks
are handed on as one batch, and whatever follows (norm, pooling, class attention, head) reads them all in the same
forward. The last row is the model's own answer.

Shape legend: L readable blocks, B batch, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.errors import VitlabError
from vitlab.instruments.shared.predictions import predict


@dataclass(frozen=True)
class Reading:
    """What the head says of the output of each block.

    Args:
        logits: (B, K), the model's own.
        blocks: by name, (B, K); the last one equals `logits`.
        why_not: by name, why the head cannot read a block, in one sentence.
    """

    logits: Tensor
    blocks: dict[str, Tensor]
    why_not: dict[str, str]


@contextmanager
def lens(model: nn.Module, anatomy: Anatomy) -> Iterator[Callable[[Tensor], Reading]]:
    """While the `with` block runs, a function from images (B, C, h, w) to a `Reading`, in one forward.

    Some models remember the size of the batch from the start (XCiT, PVT v2). These are given every image L times, and
    one copy goes through the blocks where that works (XCiT, FAN), else all (PVT v2). Where nothing works, or where the
    last block is not the last thing that mixes tokens (TNT, CrossViT), the reading says so.

    Args:
        model: a classifier, in evaluation mode and without gradients (the caller sees to both).
        anatomy: what `describe` says of it.
    """
    blocks = _readable(anatomy)
    stacking = _Stacking([block.name for block in blocks])
    with ExitStack() as stack:
        for block in blocks:
            module = model.get_submodule(_path(block))
            stack.callback(module.register_forward_hook(stacking.hook(block.name)).remove)
        for block in blocks[:1]:
            module = model.get_submodule(_path(block))
            stack.callback(module.register_forward_pre_hook(stacking.narrow).remove)
        yield lambda images: _read(model, anatomy, stacking, images)


class _Stacking:
    """Keeps the output of every block, and hands on those of the last one's shape, as one batch, in its place."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.read = names, list[str]()
        self.ways = ["stacked", "narrowed", "repeated", "none"] if names else ["none"]  # a way that fails is dropped
        self.images = 0  # how many are being read; 0 while the model is used by others
        self._kept: dict[str, Tensor] = {}

    def start(self, images: Tensor) -> Tensor:
        """A new forward: what to feed the model."""
        self.images = len(images)
        self._kept.clear()
        return images.repeat(len(self.read), 1, 1, 1) if self.ways[0] in ("narrowed", "repeated") else images

    def narrow(self, module: nn.Module, arguments: Any) -> Any:
        """Before the first block: one copy of the images is enough."""
        return (arguments[0][: self.images], *arguments[1:]) if self.images and self.ways[0] == "narrowed" else None

    def hook(self, name: str) -> Callable[..., Any]:
        """The forward hook of a block; a block that returns a tuple has its tokens first."""

        def keep(module: nn.Module, arguments: Any, output: Any) -> Any:
            if self.ways[0] == "none" or not self.images:
                return None
            tokens = output[0] if isinstance(output, tuple) else output
            self._kept[name] = tokens
            if name != self.names[-1]:
                return None
            self.read = [other for other in self.names if self._kept[other].shape == tokens.shape]
            together = torch.cat([self._kept[other][: len(tokens) // self._copies] for other in self.read])
            return (together, *output[1:]) if isinstance(output, tuple) else together

        return keep

    @property
    def _copies(self) -> int:
        return len(self.read) if self.ways[0] == "repeated" else 1


def _read(model: nn.Module, anatomy: Anatomy, stacking: _Stacking, images: Tensor) -> Reading:
    given = stacking.start(images)
    try:
        logits = predict(model, given, "the logit lens")
        names = stacking.read if stacking.ways[0] != "none" else []
        if len(logits) != len(images) * max(1, len(names)):
            raise VitlabError("what follows the last block does not keep the batch")
    except VitlabError:
        if stacking.ways[0] == "none":
            raise
        del stacking.ways[0]
        return _read(model, anatomy, stacking, images)
    finally:
        stacking.images = 0
    rows = logits.reshape(-1, len(images), logits.shape[-1])
    return Reading(rows[-1], dict(zip(names, rows, strict=False)), _why_not(anatomy, names))


def _why_not(anatomy: Anatomy, names: list[str]) -> dict[str, str]:
    why = "its output has another shape than the one that the head reads"
    if not names:
        why = "what follows the last block of this model reads no other output than its own"
    late = "it only moves the class token, after the last block that the lens reads"
    return {
        block.name: late if block.mixer.kind == "class attention" else why
        for block in anatomy.blocks
        if block.name not in names
    }


def _readable(anatomy: Anatomy) -> list[Block]:
    """The blocks whose output a module hands on; none where the last of them does not lead to the head by itself."""
    mixing = [block for block in anatomy.blocks if block.mixer.kind != "class attention"]
    if not mixing or list(anatomy.blocks[: len(mixing)]) != mixing or not _path(mixing[-1]):
        return []
    return [block for block in mixing if _path(block)]


def _path(block: Block) -> str:
    """The module whose output is the block's; empty where there is none."""
    tap = block.tap("block.out")
    return tap.path if tap is not None and tap.side == "out" else ""
