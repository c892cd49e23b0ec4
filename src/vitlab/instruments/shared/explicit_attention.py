"""Compute attention explicitly, so that a score can be differentiated with respect to attention maps.

Fused attention has no map in the autograd graph. Inside `explicit_attention` it is replaced by softmax(q kᵀ) v, equal
up to rounding; attention that is computed by an explicit softmax is only read.

Shape legend: B batch, H heads, N tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitlab.core.anatomy import Block
from vitlab.core.errors import VitlabError

_SOFTMAX = (F.softmax, torch.softmax, torch.Tensor.softmax)


@contextmanager
def explicit_attention(model: nn.Module, blocks: Sequence[Block]) -> Iterator[dict[str, Tensor]]:
    """Context manager that yields the attention maps (B, H, N, N) of the last forward by block, with their graph.

    Args:
        model: the model itself, without wrappers; the caller enables gradients.
        blocks: the blocks with attention.
    """
    mode = _ExplicitMaps()
    with ExitStack() as stack:
        for block in blocks:
            module = model.get_submodule(block.mixer.path)
            if isinstance(module, nn.MultiheadAttention):
                raise VitlabError(
                    f"{block.name} uses torch.nn.MultiheadAttention, whose maps cannot be differentiated; "
                    "use the model of timm or Hugging Face"
                )
            mode.watch(module, block.name, stack)
            if block.mixer.map_at is not None:
                mode.read_input(model.get_submodule(block.mixer.map_at), block.name, stack)
        stack.enter_context(mode)
        yield mode.maps


class _ExplicitMaps(TorchFunctionMode):
    """Stores the maps that are computed inside given modules; replaces fused attention."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: dict[str, Tensor] = {}
        self._running: list[str] = []
        self._read: set[str] = set()  # blocks whose map is read elsewhere

    def watch(self, module: nn.Module, name: str, stack: ExitStack) -> None:
        """Store the maps of a block."""

        def enter(module: nn.Module, arguments: Any) -> None:
            self._running.append(name)

        def leave(module: nn.Module, arguments: Any, output: Any) -> None:
            self._running.pop()

        stack.callback(module.register_forward_pre_hook(enter).remove)
        stack.callback(module.register_forward_hook(leave).remove)

    def read_input(self, module: nn.Module, name: str, stack: ExitStack) -> None:
        """Store the input of a module as the map of a block."""

        def read(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            self.maps[name] = arguments[0]

        self._read.add(name)
        stack.callback(module.register_forward_pre_hook(read).remove)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._running and func is F.scaled_dot_product_attention:
            return self._explicit(*args, **kwargs)
        output = func(*args, **kwargs)
        if self._running and self._running[-1] not in self._read and func in _SOFTMAX and output.ndim == 4:
            self.maps[self._running[-1]] = output
        return output

    def _explicit(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if is_causal or enable_gqa:
            raise VitlabError("causal attention and grouped queries cannot be differentiated by their maps")
        logits = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
        if attn_mask is not None:
            hidden = attn_mask.dtype == torch.bool
            logits = logits.masked_fill(~attn_mask, -torch.inf) if hidden else logits + attn_mask
        weights = logits.softmax(-1)
        self.maps[self._running[-1]] = weights
        return weights @ value
