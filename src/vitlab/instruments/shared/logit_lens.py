"""Logit lens: apply the model's final norm, pooling and head to the output of each block.

The logit lens of language models (nostalgebraist, "interpreting GPT: the logit lens", 2020) requires the locations of
the model's final norm and head. This implementation does not: a hook replaces the output of the last block by the
outputs of all blocks, concatenated along the batch axis, so that the following modules (norm, pooling, class attention,
head) process them in the same forward. The last rows are the model's own logits.

Shape legend: L readable blocks, B batch, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters import check_takes_images
from vitlab.adapters.wrappers import unwrap
from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.errors import VitlabError
from vitlab.instruments.shared.predictions import predict
from vitlab.interventions.hooks import hooked


@dataclass(frozen=True)
class LogitLensOutput:
    """Logits of the head applied to the output of each block.

    Args:
        logits: (B, K), the model's own.
        blocks: (B, K) by block name; the last one equals `logits`.
        why_not: by block name, why the head cannot be applied to a block, in one sentence.
    """

    logits: Tensor
    blocks: dict[str, Tensor]
    why_not: dict[str, str]


@contextmanager
def logit_lens(model: nn.Module, anatomy: Anatomy) -> Iterator[Callable[[Tensor], LogitLensOutput]]:
    """Context manager that yields a function from images (B, C, h, w) to a `LogitLensOutput`, in one forward.

    Some models store the batch size before the first block (XCiT, PVT v2). Their input is repeated L times; the blocks
    process one copy where this works (XCiT, FAN), otherwise all copies (PVT v2). If no strategy works, or if the last
    block is not the last module that mixes tokens (TNT, CrossViT), `why_not` holds the reason.

    Args:
        model: a classifier. The caller sets evaluation mode and disables gradients.
        anatomy: the description of the model from `describe`.
    """
    check_takes_images(unwrap(model), anatomy.input_size, "the logit lens")
    blocks = _readable_blocks(anatomy)
    stacking = _OutputStacking([block.name for block in blocks])
    with ExitStack() as stack:
        for block in blocks:
            stack.enter_context(hooked(model, _path(block), stacking.hook(block.name)))
        for block in blocks[:1]:
            stack.enter_context(hooked(model, _path(block), stacking.keep_one_copy, "in"))
        yield lambda images: _apply_lens(model, anatomy, stacking, images)


class _OutputStacking:
    """Hooks that store the output of every block and replace the last one by all outputs of its shape, as one batch."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.stacked = names, list[str]()
        #: In order of preference; a strategy that fails is removed.
        self.strategies = ["stacked", "narrowed", "repeated", "none"] if names else ["none"]
        self.images = 0  # batch size of the current forward; 0 disables the hooks
        self._outputs: dict[str, Tensor] = {}

    def start(self, images: Tensor) -> Tensor:
        """Begin a new forward and return the model's input."""
        self.images = len(images)
        self._outputs.clear()
        repeats = self.strategies[0] in ("narrowed", "repeated")
        return images.repeat(len(self.stacked), 1, 1, 1) if repeats else images

    def keep_one_copy(self, module: nn.Module, arguments: Any) -> Any:
        """Pre-hook of the first block: drop repeated copies of the images."""
        narrows = self.images and self.strategies[0] == "narrowed"
        return (arguments[0][: self.images], *arguments[1:]) if narrows else None

    def hook(self, name: str) -> Callable[..., Any]:
        """The forward hook of a block. If a block returns a tuple, its tokens are the first element."""

        def store_output(module: nn.Module, arguments: Any, output: Any) -> Any:
            if self.strategies[0] == "none" or not self.images:
                return None
            tokens = output[0] if isinstance(output, tuple) else output
            self._outputs[name] = tokens
            if name != self.names[-1]:
                return None
            self.stacked = [other for other in self.names if self._outputs[other].shape == tokens.shape]
            batch = torch.cat([self._outputs[other][: len(tokens) // self._copies] for other in self.stacked])
            return (batch, *output[1:]) if isinstance(output, tuple) else batch

        return store_output

    @property
    def _copies(self) -> int:
        return len(self.stacked) if self.strategies[0] == "repeated" else 1


def _apply_lens(model: nn.Module, anatomy: Anatomy, stacking: _OutputStacking, images: Tensor) -> LogitLensOutput:
    inputs = stacking.start(images)
    try:
        logits = predict(model, inputs, "the logit lens")
        names = stacking.stacked if stacking.strategies[0] != "none" else []
        if len(logits) != len(images) * max(1, len(names)):
            raise VitlabError("the modules after the last block change the batch size")
    except Exception:  # third-party code that does not accept the stacked outputs; the next strategy is tried
        if stacking.strategies[0] == "none":
            raise
        del stacking.strategies[0]
        return _apply_lens(model, anatomy, stacking, images)
    finally:
        stacking.images = 0
    rows = logits.reshape(-1, len(images), logits.shape[-1])
    return LogitLensOutput(rows[-1], dict(zip(names, rows, strict=False)), _why_not(anatomy, names))


def _why_not(anatomy: Anatomy, names: list[str]) -> dict[str, str]:
    why = "its output shape differs from the input shape of the head"
    if not names:
        why = "the modules after the last block of this model accept only the last block's output"
    class_attention = "it only updates the class token, after the last block of the logit lens"
    return {
        block.name: class_attention if block.mixer.kind == "class attention" else why
        for block in anatomy.blocks
        if block.name not in names
    }


def _readable_blocks(anatomy: Anatomy) -> list[Block]:
    """Blocks whose output is the output of a module; empty if the last of them is not the head's only input."""
    mixing = [block for block in anatomy.blocks if block.mixer.kind != "class attention"]
    if not mixing or list(anatomy.blocks[: len(mixing)]) != mixing or not _path(mixing[-1]):
        return []
    return [block for block in mixing if _path(block)]


def _path(block: Block) -> str:
    """Path of the module whose output is the block's output; empty if there is none."""
    tap = block.tap("block.out")
    return tap.path if tap is not None and tap.side == "out" else ""
