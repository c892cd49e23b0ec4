"""LocalViT: ViT with a convolutional feed-forward network instead of the MLP, Ti and S.

Source: Li et al., "LocalViT: Bringing Locality to Vision Transformers" (2021); a subject of CB (Table S14). A block is
x + attention(norm1(x)), then for the patch tokens alone

    y + BN(W_2 SE(h-swish(BN(DW(h-swish(BN(W_1 y))))))),

with 1×1 convolutions W_1, W_2 without bias and a depthwise 3×3 convolution DW. There is no second LayerNorm, and the
class token bypasses the feed-forward network. With the class-token head, the last feed-forward network therefore does
not affect the logits and gets no gradient; with `global_pool='avg'` it does.

From the released code: 4 heads in Ti and 8 in S (DeiT has 3 and 6), no second LayerNorm, the bypass of the class token,
a squeeze-and-excitation with 4 hidden channels. With the same weights, outputs of Ti agree with those of the released
class to 2e-6; S was compared only with 6 heads, where it did not agree. Not verified: no stochastic depth on the
feed-forward branch. The residual sum is part of the feed-forward module in the released code and of the block here (so
that `mlp` is only the branch), and the grid is an argument.

Parameters (ours, and as the paper prints them): Ti 5,908,696 (5.9 M), S 22,433,176 (22.4 M).

Shape legend: B batch, N tokens, D channels, h w grid.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from timm.layers import SEModule
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models._features import feature_take_indices
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from vitlab.models._checkpointing import checkpoint_block, is_scripting
from vitlab.models._imagenet import imagenet_cfg

__all__ = ["LocalVisionTransformer"]

PAPER = {
    "local_vit_tiny": {"params_m": 5.9, "macs_g": 1.3, "exact_params": 5_908_696},
    "local_vit_small": {"params_m": 22.4, "macs_g": 4.6, "exact_params": 22_433_176},
}

_SQUEEZED = 4  # hidden channels of the squeeze-and-excitation, the same in Ti and S


class LocalityFeedForward(nn.Module):
    """The feed-forward network with a depthwise convolution, without its residual sum.

    The arguments are those of timm's `Mlp`; other arguments are ignored.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        drop: float = 0.0,
        device: Any = None,
        dtype: Any = None,
        **ignored: Any,
    ) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(in_features, hidden_features, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(hidden_features)
        self.act1 = nn.Hardswish()
        self.depthwise = nn.Conv2d(hidden_features, hidden_features, 3, padding=1, groups=hidden_features, bias=False)
        self.norm2 = nn.BatchNorm2d(hidden_features)
        self.act2 = nn.Hardswish()
        self.excite = SEModule(hidden_features, rd_channels=_SQUEEZED, gate_layer="hard_sigmoid")
        self.drop = nn.Dropout(drop)
        self.fc2 = nn.Conv2d(hidden_features, in_features, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(in_features)
        self.to(device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, h, w) -> (B, D, h, w)."""
        x = self.act1(self.norm1(self.fc1(x)))
        x = self.act2(self.norm2(self.depthwise(x)))
        return self.norm3(self.fc2(self.drop(self.excite(x))))


class LocalBlock(Block):
    """Attention over all tokens, then the convolutional feed-forward network over the map of patch tokens."""

    def __init__(self, dim: int, num_heads: int, **settings: Any) -> None:
        super().__init__(dim, num_heads, **settings)
        self.norm2 = nn.Identity()  # the feed-forward network has its own norms; the module is a tap between the halves
        self.drop_path2 = nn.Identity()

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:  # type: ignore[override]
        """(B, prefix + h·w, D) -> the same shape; `grid` is (h, w)."""
        x = self.norm2(x + self.drop_path1(self.attn(self.norm1(x))))
        prefix = x.shape[1] - grid[0] * grid[1]
        patches = x[:, prefix:].transpose(1, 2).unflatten(2, [grid[0], grid[1]])
        patches = patches + self.mlp(patches)
        return torch.cat((x[:, :prefix], patches.flatten(2).transpose(1, 2)), dim=1)


@torch.fx.wrap
def require_no_mask(x: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
    """Returns the images, or raises an error for an attention mask."""
    if attn_mask is not None or is_causal:
        raise ValueError("LocalViT does not support attention masks: its feed-forward network would ignore them")
    return x


class LocalVisionTransformer(VisionTransformer):
    """timm's ViT with `LocalBlock`s, which take the grid; position embeddings are interpolated to the image size."""

    def __init__(self, **settings: Any) -> None:
        for name in ("init_values", "patch_drop_rate"):
            if settings.get(name):
                raise ValueError(f"LocalViT has no layer scale and no patch dropout; got {name}={settings[name]}")
        super().__init__(
            **{"dynamic_img_size": True, "block_fn": LocalBlock, "mlp_layer": LocalityFeedForward, **settings}
        )
        self.blocks = nn.ModuleList(self.blocks)  # type: ignore[assignment]  # a Sequential would pass no grid

    def _tokens(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images -> tokens with position embedding, and the grid."""
        grid = self.patch_embed.dynamic_feat_size((x.shape[-2], x.shape[-1]))
        return self.norm_pre(self._pos_embed(self.patch_embed(x))), grid

    def forward_features(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """(B, C, H, W) -> (B, 1 + h·w, D). The keywords are timm's; only their defaults are accepted."""
        x, grid = self._tokens(require_no_mask(x, attn_mask, is_causal))
        for block in self.blocks:
            if self.grad_checkpointing and not is_scripting():  # noqa: SIM108 (TorchScript needs a statement)
                x = checkpoint_block(block, x, grid)
            else:
                x = block(x, grid)
        return self.norm(x)

    def forward_intermediates(  # type: ignore[override]
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Returns the outputs of the chosen blocks as maps (`NCHW`) or patch tokens (`NLC`), and the last tokens."""
        wanted, last = feature_take_indices(len(self.blocks), indices)
        x, grid = self._tokens(x)
        taken = []
        for i, block in enumerate(self.blocks[: last + 1] if stop_early else self.blocks):
            x = checkpoint_block(block, x, grid) if self.grad_checkpointing else block(x, grid)
            if i in wanted:
                patches = (self.norm(x) if norm else x)[:, self.num_prefix_tokens :]
                taken.append(patches.transpose(1, 2).unflatten(2, grid) if output_fmt == "NCHW" else patches)
        return taken if intermediates_only else (self.norm(x), taken)


default_cfgs = generate_default_cfgs({name: imagenet_cfg() for name in PAPER})


def _create(name: str, pretrained: bool, **settings: Any) -> LocalVisionTransformer:
    features = {"out_indices": settings.pop("out_indices", 3), "feature_cls": "getter"}
    return build_model_with_cfg(LocalVisionTransformer, name, pretrained, feature_cfg=features, **settings)


@register_model
def local_vit_tiny(pretrained: bool = False, **settings: Any) -> LocalVisionTransformer:
    """LocalViT-T: D = 192, 4 heads."""
    return _create("local_vit_tiny", pretrained, **{"embed_dim": 192, "num_heads": 4, **settings})


@register_model
def local_vit_small(pretrained: bool = False, **settings: Any) -> LocalVisionTransformer:
    """LocalViT-S: D = 384, 8 heads."""
    return _create("local_vit_small", pretrained, **{"embed_dim": 384, "num_heads": 8, **settings})
