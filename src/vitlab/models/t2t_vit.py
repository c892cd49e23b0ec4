"""T2T-ViT_t-24: ViT with a tokens-to-token module as the patch embedding.

Source: Yuan et al., "Tokens-to-Token ViT: Training Vision Transformers from Scratch on ImageNet" (ICCV 2021); used in
TAPADL (Table 2). The tokens-to-token module alternates a soft split (overlapping windows of 7, 3 and 3 positions at
strides 4, 2 and 2, concatenated into one token) with a narrow transformer layer of one head and 64 channels (the "_t"
variant; the plain one uses a Performer), and projects the last split to D channels. The backbone is deep and narrow:
24 blocks, D = 512, 8 heads, MLP ratio 3, no bias on queries, keys and values, a class token, and a fixed sinusoidal
position embedding over the token index.

The narrow layer changes the number of channels, so its attention has no plain skip connection; it adds the values
instead, v + proj(attention).

The narrow attention divides its logits by the square root of the width of its input (147 and 576), not of its queries
(64), as the released model does. With 64, outputs differed from those of the released class by 9e-2; the comparison has
not been repeated since. For other image sizes the position table is interpolated as a map: our choice. Parameters:
64,000,590; the published 64.1 M includes the fixed position table, which is a buffer here and a frozen parameter in the
released model (197 · 512 = 100,864, together 64,101,454).

Shape legend: B batch, N tokens, D channels, h w grid, k window, s stride, p padding.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from timm.layers import Mlp, to_2tuple, trunc_normal_
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.models._imagenet import imagenet_cfg

__all__ = ["TokensToTokenVisionTransformer"]

PAPER = {"t2t_vit_t_24": {"params_m": 64.1, "macs_g": 15.0, "exact_params": 64_000_590}}


class SoftSplit(nn.Module):
    """Concatenate the k×k neighbourhood of every s-th position into one token.

    >>> SoftSplit(3, 2, 1)(torch.zeros(1, 5, 8, 12)).shape
    torch.Size([1, 45, 4, 6])
    """

    def __init__(self, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def grid(self, size: tuple[int, int]) -> tuple[int, int]:
        """Returns rows and columns of the output map: ⌊(h + 2p - k) / s⌋ + 1."""
        h = (size[0] + 2 * self.padding - self.kernel) // self.stride + 1
        w = (size[1] + 2 * self.padding - self.kernel) // self.stride + 1
        return h, w

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C·k², h, w)."""
        windows = F.unfold(x, self.kernel, padding=self.padding, stride=self.stride)
        h, w = self.grid((x.shape[2], x.shape[3]))
        return windows.unflatten(2, [h, w])


class TokenAttention(nn.Module):
    """One-headed attention that changes the number of channels: v + proj(softmax(q kᵀ / √dim) v).

    Args:
        dim: channels in. The scale is dim^-1/2, as in the released model, although queries have `width` channels.
        width: channels out, and of queries, keys and values.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.num_heads = 1
        self.scale = dim**-0.5
        self.qkv = nn.Linear(dim, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, dim) -> (B, N, width)."""
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)  # (B, 1, N, width) each
        y = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        return v.squeeze(1) + self.proj(y.squeeze(1))


class TokenTransformer(nn.Module):
    """The narrow transformer layer of the tokens-to-token module; its MLP does not widen (ratio 1)."""

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = TokenAttention(dim, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, dim) -> (B, N, width)."""
        x = self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TokensToToken(nn.Module):
    """Convert images to tokens at a sixteenth of their size: split, attend, split, attend, split, project.

    It replaces the patch embedding of timm's ViT and takes the same arguments; other arguments are ignored.
    """

    def __init__(
        self,
        img_size: int | tuple[int, int],
        in_chans: int,
        embed_dim: int,
        token_dim: int = 64,
        device: Any = None,
        dtype: Any = None,
        **ignored: Any,
    ) -> None:
        super().__init__()
        self.img_size = to_2tuple(img_size)
        self.split1 = SoftSplit(7, 4, 2)
        self.layer1 = TokenTransformer(in_chans * 49, token_dim)
        self.split2 = SoftSplit(3, 2, 1)
        self.layer2 = TokenTransformer(token_dim * 9, token_dim)
        self.split3 = SoftSplit(3, 2, 1)
        self.proj = nn.Linear(token_dim * 9, embed_dim)
        self.grid_size = self.dynamic_feat_size(self.img_size)
        self.num_patches = self.grid_size[0] * self.grid_size[1]
        self.to(device=device, dtype=dtype)

    def feat_ratio(self) -> int:
        """Pixels per token, in each direction."""
        return 16

    def dynamic_feat_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Returns the grid of tokens for images of that size."""
        return self.split3.grid(self.split2.grid(self.split1.grid(size)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, h, w, D)."""
        x = self.split1(x)
        h, w = x.shape[2], x.shape[3]
        x = self.split2(self.layer1(x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, [h, w]))
        h, w = x.shape[2], x.shape[3]
        x = self.layer2(x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, [h, w])
        return self.proj(self.split3(x).permute(0, 2, 3, 1))


def sinusoid_table(positions: int, dim: int) -> Tensor:
    """The fixed position embedding, (positions, D): alternating sin and cos of position / 10000^(2i / D).

    >>> sinusoid_table(2, 4)[0]
    tensor([0., 1., 0., 1.])
    """
    pair = torch.arange(dim) // 2
    angle = torch.arange(positions)[:, None] / 10000 ** (2 * pair / dim)
    return torch.where(torch.arange(dim) % 2 == 0, angle.sin(), angle.cos())


class TokensToTokenVisionTransformer(VisionTransformer):
    """timm's ViT with a tokens-to-token module and a fixed position embedding, for any image size.

    Args:
        token_dim: channels inside the tokens-to-token module.
        settings: those of timm's ViT; `patch_size` has no effect (the product of the strides is 16).
    """

    def __init__(self, token_dim: int = 64, **settings: Any) -> None:
        super().__init__(
            embed_layer=partial(TokensToToken, token_dim=token_dim),
            norm_layer=nn.LayerNorm,
            dynamic_img_size=True,
            **settings,
        )
        assert self.pos_embed is not None
        table = self.pos_embed.data
        del self.pos_embed
        self.register_buffer("pos_embed", table)

    def init_weights(self, mode: str = "", needs_reset: bool = True) -> None:
        """timm's initialisation, the class token from a truncated normal of 0.02, and the sinusoidal table."""
        super().init_weights(mode, needs_reset)
        with torch.no_grad():
            trunc_normal_(self.cls_token, std=0.02)
            table: Any = self.pos_embed
            table.copy_(sinusoid_table(*table.shape[1:]))


default_cfgs = generate_default_cfgs({"t2t_vit_t_24": imagenet_cfg("patch_embed.layer1.attn.qkv")})


@register_model
def t2t_vit_t_24(pretrained: bool = False, **settings: Any) -> TokensToTokenVisionTransformer:
    """T2T-ViT_t-24: 24 blocks, D = 512, 8 heads, MLP ratio 3."""
    settings = {"embed_dim": 512, "depth": 24, "num_heads": 8, "mlp_ratio": 3.0, "qkv_bias": False, **settings}
    features = {"out_indices": settings.pop("out_indices", 3), "feature_cls": "getter"}
    return build_model_with_cfg(
        TokensToTokenVisionTransformer, "t2t_vit_t_24", pretrained, feature_cfg=features, **settings
    )
