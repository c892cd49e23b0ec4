"""Uniform heads: attention in which one head averages all tokens.

Variants (A), (B) and (C) of "Scratching Visual Transformer's Back with Uniform Attention" (CB), Sec. 3.3, Table 1.

Shape legend: B batch, H heads, N tokens, D channels, d channels of a head.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.core.errors import VitlabError, unknown
from vitlab.modules.qkv import PackedAttention

__all__ = ["UniformHead"]

Form = Literal["A", "B", "C"]


class UniformHead(PackedAttention):
    """One head of uniform attention, instead of a learned head or in addition to them.

    A uniform head weighs every token by 1/N, so its output is head(x)_i = (1/N) Σ_j v_j for every i: its queries and
    keys have no effect (CB, Sec. 3.3, Table 1). The paper describes the three forms in one sentence each and gives
    rounded sizes; the counts here are for ViT-S (D = 384, H = 6, 12 layers, 22,050,664 parameters without them).

    - `A`: the last head becomes uniform and loses its queries and keys: -2d(D+1) a layer, 21,459,304 (paper: 21 M).
    - `B`: A, with the size of the original: 22,049,896 (paper: 22 M). How is not published. Our choice is a uniform
      head of twice the width, with d more values and d more columns of the projection: +d(2D+1) a layer, which is d
      less than A removes. They are separate layers `extra_value` and `extra_proj`.
    - `C`: a uniform head as wide as the model, in addition to the learned ones: +4D² a layer, 29,128,552 (paper: 29 M).
      Not published either; other natural interpretations do not give 29 M. It has queries, keys, values and projection
      without bias, so two thirds of `extra_qkv` are unused: they exist to match the paper's size, and their gradient is
      exactly zero.

    The extra projections are initialised to zero, so that B initially equals A, and C the original model.

    Args:
        attention: the attention module to replace, of timm's form. Its modules are shared, except for the sliced `qkv`
            of A and B. A checkpoint of the plain model can be loaded: its full `qkv` is sliced, and extra weights keep
            their values.
        form: `"A"`, `"B"` or `"C"`.
        identity_init: requires form C, which is initially the original model.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> attention = nn.Module()
    >>> attention.qkv, attention.proj, attention.num_heads = nn.Linear(4, 12), nn.Linear(4, 4), 2
    >>> UniformHead(attention, form="A").qkv.out_features  # queries and keys of one head, values of two
    8
    """

    def __init__(self, attention: nn.Module, *, form: Form = "A", identity_init: bool = False) -> None:
        super().__init__(attention)
        if form not in get_args(Form):
            raise unknown("form of UniformHead", form, get_args(Form))
        if form != "C" and self.num_heads < 2:
            raise VitlabError(
                f"invalid form={form!r} of UniformHead; expected several heads; this attention has {self.num_heads}"
            )
        if identity_init and form != "C":
            raise VitlabError(
                f"UniformHead(form={form!r}) replaces a head and has no identity initialisation; use form='C', or omit "
                "identity_init"
            )
        self.form = form
        dim, weight, biased = self.qkv.in_features, self.qkv.weight, self.qkv.bias is not None
        like = _Like(device=weight.device, dtype=weight.dtype)
        if form != "C":
            self.qkv = self._sliced(self.qkv)
        if form == "B":
            self.extra_value = _normal(nn.Linear(dim, self.head_dim, bias=biased, **like))
            self.extra_proj = _zero(nn.Linear(self.head_dim, self.proj.out_features, bias=False, **like))
        if form == "C":
            self.extra_qkv = _normal(nn.Linear(dim, 3 * dim, bias=False, **like))
            self.extra_proj = _zero(nn.Linear(dim, self.proj.out_features, bias=False, **like))

    def mix(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        heads = self.attend(*self.queries_keys_values(x)) if self.form == "C" else self._replaced(x)
        projected = self.proj(self.norm(self.merge(heads)))
        if self.form != "A":
            projected = projected + self._extra(x)
        output: Tensor = self.proj_drop(projected)
        return output

    def _replaced(self, x: Tensor) -> Tensor:
        """Returns H - 1 learned heads and a uniform head, (B, H, N, d)."""
        learned = (self.num_heads - 1) * self.head_dim
        packed = self.qkv(x).split((learned, learned, learned + self.head_dim), dim=-1)
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in packed)
        attended = self.attend(self.q_norm(q), self.k_norm(k), v[:, :-1])
        last = v[:, -1:]
        return torch.cat((attended, last.mean(dim=2, keepdim=True).expand_as(last)), dim=1)

    def _extra(self, x: Tensor) -> Tensor:
        """Returns what the extra uniform head adds to every token, (B, 1, D); averages first, to project one token."""
        context = x.mean(dim=1, keepdim=True)
        if self.form == "B":
            values: Tensor = self.extra_value(context)
        else:  # a slice of the packed weights: the unused ones get zero gradients; None would be an error in DDP
            values = F.linear(context, self.extra_qkv.weight.chunk(3)[2])
        added: Tensor = self.extra_proj(values)
        return added

    def _sliced(self, qkv: nn.Linear) -> nn.Linear:
        """Returns the packed layer without queries and keys of the last head, with the same weights."""
        rows = qkv.out_features - 2 * self.head_dim
        sliced = nn.Linear(qkv.in_features, rows, bias=qkv.bias is not None, device="meta")
        for name, parameter in qkv.named_parameters():
            rows_kept = self._select_rows(parameter.detach())
            setattr(sliced, name, nn.Parameter(rows_kept, requires_grad=parameter.requires_grad))
        return sliced

    def _select_rows(self, packed: Tensor) -> Tensor:
        """Select from rows (3·H·d, …) the queries and keys of all heads but the last, and the values of all."""
        q, k, v = packed.chunk(3)
        return torch.cat((q[: -self.head_dim], k[: -self.head_dim], v))

    @torch.no_grad()
    def write_back(self, attention: nn.Module) -> None:
        """Copy the packed weights, which may have changed since, to the attention module that this one replaced."""
        if self.form == "C":
            return  # shared, not copied
        learned = (self.num_heads - 1) * self.head_dim
        for name, rows in self.qkv.named_parameters():
            q, k, v = attention.get_submodule("qkv").get_parameter(name).chunk(3)
            for place, value in ((q[:learned], rows[:learned]), (k[:learned], rows[learned : 2 * learned])):
                place.copy_(value)
            v.copy_(rows[2 * learned :])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        for name in ("weight", "bias"):
            rows = state_dict.get(key := f"{prefix}qkv.{name}")
            if self.form != "C" and rows is not None and len(rows) == 3 * self.num_heads * self.head_dim:
                state_dict[key] = self._select_rows(rows)
        extra = {prefix + name: value for name, value in self.named_parameters() if name.startswith("extra_")}
        if not extra.keys() & state_dict.keys():  # a checkpoint of the plain model: extra weights keep their values
            state_dict.update(extra)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class _Like(TypedDict):
    device: torch.device
    dtype: torch.dtype


def _normal(layer: nn.Linear) -> nn.Linear:
    """Initialise a linear layer as DeiT does."""
    nn.init.trunc_normal_(layer.weight, std=0.02)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _zero(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    return layer
