"""Gradient checkpointing of blocks with BatchNorm: the second forward does not update the running statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from timm.models import checkpoint
from torch import nn

__all__ = ["checkpoint_block", "is_scripting"]

#: Whether TorchScript compiles the calling function; known to TorchScript under any name.
is_scripting = torch.jit.is_scripting  # type: ignore[attr-defined]


@torch.jit.ignore  # type: ignore[untyped-decorator]
def checkpoint_block(block: nn.Module, *arguments: Any) -> Any:
    """Call a block without keeping its activations; they are computed again in the backward pass.

    Args:
        block: the module.
        arguments: its arguments.
    """
    if torch.compiler.is_compiling():
        # The compiler decides what to compute again, never updates buffers twice, and does not support `context_fn`.
        return checkpoint(block, *arguments, use_reentrant=False)

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _frozen_statistics(block)

    return checkpoint(block, *arguments, use_reentrant=False, context_fn=contexts)


@contextmanager
def _frozen_statistics(block: nn.Module) -> Iterator[None]:
    """Update copies of the running statistics of all BatchNorms; in training mode outputs do not depend on them."""
    norms = [module for module in block.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    statistics = [(norm, dict(norm.named_buffers(recurse=False))) for norm in norms]
    for norm, buffers in statistics:
        for name, buffer in buffers.items():
            setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, buffers in statistics:
            for name, buffer in buffers.items():
                setattr(norm, name, buffer)
