"""Local attention: every query attends only to its neighbourhood on the map.

The convolutional multi-head attention of "How Do Vision Transformers Work?" (HDVW), Sec. 2 and Fig. 7.

Shape legend: B batch, H heads, N tokens, P prefix tokens, D channels, d channels of a head, h w grid, k kernel.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.core.anatomy import TokenLayout
from vitlab.core.bounds import Range
from vitlab.core.errors import VitlabError
from vitlab.modules.qkv import PackedAttention

__all__ = ["LocalAttention"]


class LocalAttention(PackedAttention):
    """Attention inside a k×k window around each query.

    y_p = Σ_{o in window} softmax_o(q_p · k_{p+o} / √d) v_{p+o} (HDVW, Sec. 2, Fig. 7). Positions outside the map are
    not attended, and no N×N map is computed: keys and values are shifted, and the map is (B, H, h·w, P + k²). The
    weights are those of the attention that it replaces.

    The paper's k = 8 on its 8×8 map means global attention, though a window of 8 has no centre. So an even k that
    covers the map (k >= max(h, w)) means global attention, and other even numbers are invalid. An odd k means a k×k
    window; from k = 2 max(h, w) - 1 on every window covers the map, and global attention is computed. Prefix tokens
    attend to all tokens and are attended by all: our choice, since the paper's model has none.

    Args:
        attention: the attention module to replace, of timm's form; all its modules are shared.
        layout: grid and prefix of the tokens, which must be (B, N, D) in row-major order.
        kernel: k.
        identity_init: requires global attention, which equals the attention that it replaces.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> attention = nn.Module()
    >>> attention.qkv, attention.proj, attention.num_heads = nn.Linear(2, 6), nn.Linear(2, 2), 1
    >>> part = LocalAttention(attention, TokenLayout((1, 3)), kernel=1)
    >>> x = torch.randn(1, 3, 2)
    >>> torch.allclose(part(x), part.proj(part.qkv(x)[..., 4:]))  # each token attends only to itself
    True
    """

    outside: Tensor | None

    def __init__(
        self,
        attention: nn.Module,
        layout: TokenLayout,
        *,
        kernel: Annotated[int, Range(1, 1023)] = 3,
        identity_init: bool = False,
    ) -> None:
        super().__init__(attention)
        if layout.order != "BND" or layout.windows > 1 or layout.permutation is not None:
            raise VitlabError(f"LocalAttention requires one row-major sequence (B, N, D) per image; got {layout}")
        widest = max(layout.grid)
        if not isinstance(kernel, int) or kernel < 1 or (kernel % 2 == 0 and kernel < widest):
            raise VitlabError(
                f"invalid kernel={kernel} of LocalAttention; expected odd, or at least {widest} for global attention"
            )
        self.layout = layout
        self.kernel = kernel
        self.is_global = kernel % 2 == 0 or kernel >= 2 * widest - 1
        if identity_init and not self.is_global:
            raise VitlabError(
                f"LocalAttention(kernel={kernel}) has no parameters and no identity initialisation; omit identity_init"
            )
        #: Why the recorder has no token-token map here: the softmax is over the offsets of a window.
        self.why_no_map = None if self.is_global else f"each token attends to its own {kernel}x{kernel} window only"
        inside = torch.ones(1, 1, *layout.grid, 1, device=self.qkv.weight.device)
        outside = None if self.is_global else torch.cat(self._neighbours(inside), dim=-1).flatten(0, 3) == 0
        self.register_buffer("outside", outside, persistent=False)  # (h·w, k²)

    def mix(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        self.layout.check(x.shape[1], type(self).__name__)
        q, k, v = self.queries_keys_values(x)
        heads = self.attend(q, k, v) if self.outside is None else self._local(q, k, v, self.outside)
        return self.project(self.merge(heads))

    def _local(self, q: Tensor, k: Tensor, v: Tensor, outside: Tensor) -> Tensor:
        """Prefix queries attend to all N keys, grid queries to the prefix and their window; (B, H, N, d)."""
        prefix, (h, w) = self.layout.prefix, self.layout.grid
        query, key, value = (part[:, :, prefix:].reshape(*q.shape[:2], h, w, -1) for part in (q, k, v))
        far = q[:, :, prefix:] @ k[:, :, :prefix].transpose(-2, -1)
        near = torch.stack([(query * shifted).sum(dim=-1) for shifted in self._neighbours(key)], dim=-1).flatten(2, 3)
        scores = self.scale * torch.cat((far, near.masked_fill(outside, float("-inf"))), dim=-1)
        weights = self.attn_drop(scores.softmax(dim=-1)).to(v.dtype)  # (B, H, h·w, P + k²); float32 under autocast
        to_prefix, to_window = weights[..., :prefix], weights[..., prefix:].reshape(*q.shape[:2], h, w, -1)
        mixed = torch.zeros_like(value)
        for offset, shifted in enumerate(self._neighbours(value)):
            mixed = mixed + to_window[..., offset : offset + 1] * shifted
        if prefix == 0:
            return mixed.flatten(2, 3)
        local = mixed.flatten(2, 3) + to_prefix @ v[:, :, :prefix]
        return torch.cat((self.attend(q[:, :, :prefix], k, v), local), dim=2)

    def _neighbours(self, x: Tensor) -> list[Tensor]:
        """Returns the k² neighbours of every token: k² tensors of (B, H, h, w, d), zeros outside.

        They are shifted views of one padded map; unfold takes k² times the memory and three times as long on a CPU.
        """
        (h, w), reach = self.layout.grid, self.kernel // 2
        padded = F.pad(x, (0, 0, reach, reach, reach, reach))
        return [padded[:, :, i : i + h, j : j + w] for i in range(self.kernel) for j in range(self.kernel)]
