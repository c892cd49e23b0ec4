"""Local attention: every query attends only to the neighbourhood of its place on the map.

The convolutional multi-head attention of "How Do Vision Transformers Work?" (HDVW), Sec. 2 and Fig. 7.

Shape legend: B batch, H heads, N tokens, P prefix tokens, D channels, d channels of a head, h w grid, k kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.modules.qkv import PackedAttention

__all__ = ["LocalAttention"]


class LocalAttention(PackedAttention):
    """Attention inside a k×k window around each query.

    y_p = Σ_{o in window} softmax_o(q_p · k_{p+o} / √d) v_{p+o} (HDVW, Sec. 2, Fig. 7). Places outside the map are not
    attended, and no N×N map is made: keys and values are shifted, and the map is (B, H, h·w, P + k²). The weights are
    those of the attention that it replaces.

    The paper's k = 8 on its 8×8 map stands for global attention, though a window of 8 has no centre. So an even k that
    covers the map (k >= max(h, w)) means global attention, other even numbers are refused, and an odd k is taken at
    its word: its windows hold the whole map from k = 2 max(h, w) - 1 on, where global attention is computed as such.

    Prefix tokens attend to everything and are attended by everything: our choice, for the paper's model has none.

    Args:
        attention: the attention module that is being replaced, of timm's form; all its modules are shared.
        layout: grid and prefix of the tokens, which must lie in (B, N, D) and in the order of the rows.
        kernel: k.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> attention = nn.Module()
    >>> attention.qkv, attention.proj, attention.num_heads = nn.Linear(2, 6), nn.Linear(2, 2), 1
    >>> part = LocalAttention(attention, TokenLayout((1, 3)), kernel=1)
    >>> x = torch.randn(1, 3, 2)
    >>> torch.allclose(part(x), part.proj(part.qkv(x)[..., 4:]))  # alone in its window, a token takes its own value
    True
    """

    outside: Tensor | None

    def __init__(self, attention: nn.Module, layout: TokenLayout, *, kernel: int = 3) -> None:
        super().__init__(attention)
        if layout.order != "BND" or layout.windows > 1 or layout.permutation is not None:
            raise VitlabError(
                f"LocalAttention needs one row-major sequence (B, N, D) per image, but tokens lie as {layout}"
            )
        widest = max(layout.grid)
        if not isinstance(kernel, int) or kernel < 1 or (kernel % 2 == 0 and kernel < widest):
            raise VitlabError(
                f"LocalAttention got kernel={kernel}; expected an odd number, or at least {widest} for global attention"
            )
        self.layout = layout
        self.kernel = kernel
        self.is_global = kernel % 2 == 0 or kernel >= 2 * widest - 1
        #: Why the recorder finds no token-token map here: the softmax runs over the offsets of a window.
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
        """Prefix queries look at all N keys, grid queries at the prefix and their window; (B, H, N, d)."""
        prefix, (h, w) = self.layout.prefix, self.layout.grid
        query, key, value = (part[:, :, prefix:].reshape(*q.shape[:2], h, w, -1) for part in (q, k, v))
        far = q[:, :, prefix:] @ k[:, :, :prefix].transpose(-2, -1)
        near = torch.stack([(query * shifted).sum(dim=-1) for shifted in self._neighbours(key)], dim=-1).flatten(2, 3)
        scores = self.scale * torch.cat((far, near.masked_fill(outside, float("-inf"))), dim=-1)
        weights = self.attn_drop(scores.softmax(dim=-1)).to(v.dtype)  # (B, H, h·w, P + k²); autocast made it float32
        to_prefix, to_window = weights[..., :prefix], weights[..., prefix:].reshape(*q.shape[:2], h, w, -1)
        mixed = torch.zeros_like(value)
        for place, shifted in enumerate(self._neighbours(value)):
            mixed = mixed + to_window[..., place : place + 1] * shifted
        if prefix == 0:
            return mixed.flatten(2, 3)
        local = mixed.flatten(2, 3) + to_prefix @ v[:, :, :prefix]
        return torch.cat((self.attend(q[:, :, :prefix], k, v), local), dim=2)

    def _neighbours(self, x: Tensor) -> list[Tensor]:
        """For each of the k² places of a window, what every token finds there: k² times (B, H, h, w, d), zeros outside.

        They are shifted views of one padded map; unfolding takes k² times the memory and three times as long on a CPU.
        """
        (h, w), reach = self.layout.grid, self.kernel // 2
        padded = F.pad(x, (0, 0, reach, reach, reach, reach))
        return [padded[:, :, i : i + h, j : j + w] for i in range(self.kernel) for j in range(self.kernel)]
