"""Base class of parts that replace an attention module with packed queries, keys and values.

Shape legend: B batch, H heads, N tokens, D channels, d channels of a head.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.core.errors import VitlabError

__all__: list[str] = []

_CHILDREN = ("qkv", "q_norm", "k_norm", "attn_drop", "norm", "proj", "proj_drop")


class PackedAttention(nn.Module):
    """Base class of parts at the `attn` seam: uses the modules of a timm attention.

    A timm attention has Linear `qkv` (D -> 3·H·d), `num_heads`, Linear `proj` (H·d -> D), and optionally `q_norm`,
    `k_norm`, `norm` (before proj), `attn_drop`, `proj_drop`. The modules are shared, not copied, and keep their names:
    weights and state-dict keys stay. An attention with anything else (a gate, a position bias, …) is an error, since
    omitting it would change the model.

    Args:
        attention: the attention module to replace.
    """

    default_seam: ClassVar[str] = "attn"

    qkv: nn.Linear
    q_norm: nn.Module
    k_norm: nn.Module
    attn_drop: nn.Module
    norm: nn.Module
    proj: nn.Linear
    proj_drop: nn.Module

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        _check_form(attention, type(self).__name__)
        for name in _CHILDREN:
            self.add_module(name, getattr(attention, name, None) or nn.Identity())
        self.num_heads = int(getattr(attention, "num_heads"))  # noqa: B009 (nn.Module types it as a tensor)
        self.head_dim = self.proj.in_features // self.num_heads
        self.scale = float(getattr(attention, "scale", self.head_dim**-0.5))

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """(B, N, D) -> (B, N, D). timm's blocks pass the two keywords; only their defaults are supported."""
        if attn_mask is not None or is_causal:
            raise VitlabError(f"{type(self).__name__} supports no attention mask; got attn_mask or is_causal=True")
        return self.mix(x)

    def mix(self, x: Tensor) -> Tensor:
        """The computation of the part, (B, N, D) -> (B, N, D)."""
        raise NotImplementedError

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, N, D) -> queries, keys and values of all heads, each (B, H, N, d)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.q_norm(q), self.k_norm(k), v

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Fused attention of every query to every key, (B, H, N, d)."""
        dropout = self.attn_drop.p if self.training and isinstance(self.attn_drop, nn.Dropout) else 0.0
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=self.scale)

    def merge(self, heads: Tensor) -> Tensor:
        """Concatenate the heads before the projection: (B, H, N, d) -> (B, N, H·d)."""
        return heads.transpose(1, 2).flatten(2)

    def project(self, merged: Tensor) -> Tensor:
        """Apply norm, projection and dropout: (B, N, H·d) -> (B, N, D)."""
        projected: Tensor = self.proj_drop(self.proj(self.norm(merged)))
        return projected


def _check_form(attention: nn.Module, part: str) -> None:
    """Raise if the forward pass of an attention module cannot be reproduced."""
    given = type(attention).__name__
    qkv, proj, heads = (getattr(attention, name, None) for name in ("qkv", "proj", "num_heads"))
    if not (isinstance(qkv, nn.Linear) and isinstance(proj, nn.Linear) and isinstance(heads, int)):
        raise VitlabError(f"{part} requires an attention with linear qkv and proj and with num_heads; {given} differs")
    if qkv.out_features != 3 * proj.in_features or proj.in_features % heads:
        raise VitlabError(
            f"{part} requires qkv to pack three times {heads} equal heads, as many as proj takes; {given} has "
            f"qkv {qkv.in_features} -> {qkv.out_features} and proj {proj.in_features} -> {proj.out_features}"
        )
    unsupported = [name for name, child in attention.named_children() if name not in _CHILDREN]
    unsupported += [
        name for name, _ in (*attention.named_parameters(recurse=False), *attention.named_buffers(recurse=False))
    ]
    if unsupported:
        raise VitlabError(f"{part} does not support {', '.join(unsupported)} of {given}; only {', '.join(_CHILDREN)}")
