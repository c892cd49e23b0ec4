"""FAN: fully attentional networks, whose channel MLP is gated by an attention over channels; plain and hybrid.

Source: Zhou et al., "Understanding The Robustness in Vision Transformers" (ICML 2022), the baseline of "Robustifying
Token Attention for Vision Transformers" (TAPADL). Its public code is licensed non-commercial: this file was written
from a description of the architecture in our own words, without looking at that code.

FAN is built like XCiT (convolutional or ConvNeXt stem, Fourier position encoding, blocks, class attention at the end),
so the model here is timm's Xcit with other blocks, and another stem in the hybrids.

Where the paper, the released model and this file differ:

- The released model projects q apart from k and v; here they are packed into one layer: the same map, parameters and
  initialisation, and parts that replace attention understand it.
- Channel attention is the form that the released model computes, not Eq. 6 of the paper, which no released code has.
- Printed parameters mostly cut off after one digit. FAN-S-ViT (28.0 printed, 28.3 here), FAN-B-ViT (54.0, 54.4) and
  FAN-S-Hybrid (26.3, 26.1) differ by 0.2 to 0.35 M, 1.2 % at most; our counts are exactly those of the released model.
- Multiply-accumulates of FAN-B-Hybrid: 11.77 G here, 11.7 in TAPADL, which seems to cut. Its figures are all we know.
- The classifier of the large ones starts 1000 times smaller. Our notes say so of FAN-L without naming the kind: both.
- Stochastic depth has one rate in all blocks; the stem has none.

Shape legend: B batch, H heads, N tokens, C channels, h w grid.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from timm.layers import Attention, DropPath, LayerNorm, LayerNorm2d, to_2tuple, trunc_normal_
from timm.models import build_model_with_cfg, checkpoint, generate_default_cfgs, register_model
from timm.models._features import feature_take_indices
from timm.models.convnext import ConvNeXtStage
from timm.models.xcit import LPI, Xcit
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.models._imagenet import imagenet_cfg

__all__ = ["FullyAttentionalNetwork"]

#: What the papers print (FAN, and TAPADL for multiply-accumulates), and our notes' exact counts.
PAPER = {
    "fan_tiny_vit": {"params_m": 7.3, "macs_g": None, "exact_params": 7_319_920},
    "fan_small_vit": {"params_m": 28.0, "macs_g": None, "exact_params": 28_345_336},
    "fan_base_vit": {"params_m": 54.0, "macs_g": None, "exact_params": 54_350_320},
    "fan_large_vit": {"params_m": 80.5, "macs_g": None, "exact_params": 80_574_100},
    "fan_tiny_hybrid": {"params_m": 7.4, "macs_g": None, "exact_params": 7_467_240},
    "fan_small_hybrid": {"params_m": 26.3, "macs_g": None, "exact_params": 26_117_944},
    "fan_base_hybrid": {"params_m": 50.4, "macs_g": 11.7, "exact_params": 50_475_048},
    "fan_large_hybrid": {"params_m": 76.8, "macs_g": None, "exact_params": 76_855_140},
}

layer_norm = partial(nn.LayerNorm, eps=1e-6)


def channel_gate(q: Tensor, k: Tensor, temperature: Tensor) -> Tensor:
    """How much each channel passes on: τ · sigmoid(softmax_N(q)ᵀ · mean_c softmax_N(k)).

    Every channel of q attends over tokens; every head of k says which tokens count.

    Args:
        q, k: (B, N, H, C/H).
        temperature: τ, (H, 1, 1).

    Returns:
        (B, 1, C), between 0 and τ.

    >>> q = torch.zeros(1, 4, 1, 2)  # uniform over 4 tokens: the product is 1/4
    >>> channel_gate(q, q, torch.ones(1, 1, 1)) == torch.tensor(0.25).sigmoid()
    tensor([[[True, True]]])
    """
    important = k.softmax(dim=1).mean(dim=-1)  # (B, N, H)
    attended = torch.einsum("bnhc,bnh->bhc", q.softmax(dim=1), important)
    return (attended.sigmoid() * temperature.squeeze(-1)).flatten(1).unsqueeze(1)


class ConvolutionalMlp(nn.Module):
    """fc1, then u + γ · DW(u), then fc2; DW is depthwise 3×3, GELU, BatchNorm, depthwise 3×3, as XCiT's LPI.

    The only activation is the one inside DW. γ starts at one.
    """

    def __init__(self, dim: int, hidden: int, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.depthwise = LPI(hidden)
        self.gamma = nn.Parameter(torch.ones(hidden))
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor, h: int, w: int) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        u = self.fc1(x)
        u = self.drop(u + self.gamma * self.depthwise(u, h, w))
        return self.drop(self.fc2(u))


class ChannelProcessing(nn.Module):
    """Attentional channel processing: LN(MLP(x)), each channel gated by `channel_gate`.

    q is projected; k and v are x itself, and the output is not projected.
    """

    def __init__(self, dim: int, num_heads: int, mlp_ratio: float = 4.0, drop: float = 0.0) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q = nn.Linear(dim, dim)
        self.temperature = nn.Parameter(torch.ones(num_heads, 1, 1))
        self.mlp = ConvolutionalMlp(dim, int(dim * mlp_ratio), drop)
        self.norm = nn.LayerNorm(dim)  # eps 1e-5 here, 1e-6 in the blocks

    def forward(self, x: Tensor, h: int, w: int) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        heads = (self.num_heads, -1)
        gate = channel_gate(self.q(x).unflatten(2, heads), x.unflatten(2, heads), self.temperature)
        return gate * self.norm(self.mlp(x, h, w))


class FullyAttentionalBlock(nn.Module):
    """x + γ₁ · attention(LN(x)), then x + γ₂ · channel processing(LN(x)); both γ start at one."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        proj_drop: float = 0.0,
        attn_drop: float = 0.0,
        drop_path: float = 0.0,
        eta: float = 1.0,
    ) -> None:
        super().__init__()
        self.norm1 = layer_norm(dim)
        self.attn = Attention(dim, num_heads, qkv_bias=True, attn_drop=attn_drop, proj_drop=proj_drop)
        self.gamma1 = nn.Parameter(torch.full((dim,), eta))
        self.drop_path1 = DropPath(drop_path)
        self.norm2 = layer_norm(dim)
        self.mlp = ChannelProcessing(dim, num_heads, mlp_ratio, proj_drop)
        self.gamma2 = nn.Parameter(torch.full((dim,), eta))
        self.drop_path2 = DropPath(drop_path)

    def forward(self, x: Tensor, h: int, w: int) -> Tensor:
        """(B, N, C) -> (B, N, C), the tokens lying on an h×w grid."""
        x = x + self.drop_path1(self.gamma1 * self.attn(self.norm1(x)))
        return x + self.drop_path2(self.gamma2 * self.mlp(self.norm2(x), h, w))


class HybridPatchEmbed(nn.Module):
    """The first two stages of a ConvNeXt, then a 2×2 convolution with stride 2: tokens of 16×16 pixels.

    Args:
        in_chans: channels of the image.
        embed_dim: C.
        depths, dims: blocks and channels of the two stages.
    """

    def __init__(
        self, in_chans: int, embed_dim: int, depths: tuple[int, int] = (3, 3), dims: tuple[int, int] = (128, 256)
    ) -> None:
        super().__init__()
        settings: dict[str, Any] = {"ls_init_value": 1e-6, "norm_layer": LayerNorm2d, "norm_layer_cl": LayerNorm}
        self.stem = nn.Sequential(nn.Conv2d(in_chans, dims[0], 4, stride=4), LayerNorm2d(dims[0]))
        self.stages = nn.ModuleList(
            [
                ConvNeXtStage(dims[0], dims[0], stride=1, depth=depths[0], **settings),
                ConvNeXtStage(dims[0], dims[1], stride=2, depth=depths[1], **settings),
            ]
        )
        self.proj = nn.Conv2d(dims[1], embed_dim, 2, stride=2)
        self.apply(_initialise_convolution)

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        """The maps after the two stages, of stride 4 and 8."""
        first = self.stages[0](self.stem(x))
        return [first, self.stages[1](first)]

    def embed(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Tokens of the second stage's map, and their grid."""
        x = self.proj(x)
        return x.flatten(2).transpose(1, 2), (x.shape[2], x.shape[3])

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(B, 3, H, W) -> (B, N, C) and (h, w)."""
        return self.embed(self.forward_stages(x)[-1])


def _initialise_convolution(module: nn.Module) -> None:
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


class FullyAttentionalNetwork(Xcit):
    """FAN: stem, Fourier position encoding, fully attentional blocks, two class-attention blocks, classifier.

    Args:
        img_size: accepted as everywhere in timm; no parameter depends on it.
        stem_depths: blocks of the two ConvNeXt stages of the hybrids; None for four 3×3 convolutions (FAN-ViT).
        stem_dims: their channels.
        head_scale: factor on the classifier's initial weights.
        others: as in timm's Xcit; `drop_path_rate` is the same in all blocks.
    """

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "token",
        embed_dim: int = 192,
        depth: int = 12,
        num_heads: int = 4,
        mlp_ratio: float = 4.0,
        stem_depths: tuple[int, int] | None = None,
        stem_dims: tuple[int, int] = (128, 256),
        drop_rate: float = 0.0,
        pos_drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        cls_attn_layers: int = 2,
        eta: float = 1.0,
        head_scale: float = 1.0,
    ) -> None:
        super().__init__(
            in_chans=in_chans,
            num_classes=num_classes,
            global_pool=global_pool,
            embed_dim=embed_dim,
            depth=0,  # its blocks are not ours
            num_heads=num_heads,
            mlp_ratio=mlp_ratio,
            drop_rate=drop_rate,
            pos_drop_rate=pos_drop_rate,
            attn_drop_rate=attn_drop_rate,
            cls_attn_layers=cls_attn_layers,
            eta=eta,
            tokens_norm=True,
        )
        self.img_size: tuple[int, int] = to_2tuple(img_size)
        self.patch_embed.img_size = self.img_size
        self.blocks = nn.ModuleList(
            FullyAttentionalBlock(embed_dim, num_heads, mlp_ratio, proj_drop_rate, attn_drop_rate, drop_path_rate, eta)
            for _ in range(depth)
        )
        self.blocks.apply(self._init_weights)
        self.feature_info = [{"num_chs": embed_dim, "reduction": 16, "module": f"blocks.{i}"} for i in range(depth)]
        if stem_depths is not None:
            self.patch_embed = HybridPatchEmbed(in_chans, embed_dim, stem_depths, stem_dims)  # type: ignore[assignment]
            self.feature_info = [
                {"num_chs": dim, "reduction": 4 * 2**stage, "module": f"patch_embed.stages.{stage}"}
                for stage, dim in enumerate(stem_dims)
            ] + self.feature_info
        if isinstance(self.head, nn.Linear):
            with torch.no_grad():
                self.head.weight.mul_(head_scale)

    def no_weight_decay(self) -> set[str]:
        """The class token and the temperatures."""
        return {"cls_token"} | {f"blocks.{index}.mlp.temperature" for index in range(len(self.blocks))}

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """The maps after chosen places of `feature_info`: in the hybrids, the two stages of the stem come first."""
        if output_fmt != "NCHW":
            raise VitlabError(f"output_fmt={output_fmt!r} is not known; FAN gives maps, 'NCHW'")
        take, last = feature_take_indices(len(self.feature_info), indices)
        stem: list[Tensor] = []
        if isinstance(self.patch_embed, HybridPatchEmbed):
            stem = self.patch_embed.forward_stages(x)
            x, (h, w) = self.patch_embed.embed(stem[-1])
        else:
            x, (h, w) = self.patch_embed(x)
        maps = [stage for index, stage in enumerate(stem) if index in take]
        x = self.pos_drop(x + self.pos_embed(x.shape[0], h, w).flatten(2).transpose(1, 2))
        for index, block in enumerate(self.blocks, start=len(stem)):
            if stop_early and index > last:
                break
            x = checkpoint(block, x, h, w) if self.grad_checkpointing else block(x, h, w)
            if index in take:
                maps.append((self.norm(x) if norm else x).transpose(1, 2).unflatten(2, (h, w)))
        if intermediates_only:
            return maps
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        for block in self.cls_attn_blocks:
            x = block(x)
        return self.norm(x), maps

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop what the chosen maps do not need."""
        take, last = feature_take_indices(len(self.feature_info), indices)
        before = len(self.feature_info) - len(self.blocks)
        self.blocks = self.blocks[: max(last + 1 - before, 0)]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.cls_attn_blocks = nn.ModuleList()
            self.reset_classifier(0, "")
        return take


default_cfgs = generate_default_cfgs(
    {
        f"{name}.untrained": imagenet_cfg(
            "patch_embed.stem.0" if name.endswith("hybrid") else "patch_embed.proj.0.0", crop_pct=1.0
        )
        for name in PAPER
    }
)


def _create(variant: str, pretrained: bool, given: dict[str, Any], **defaults: Any) -> nn.Module:
    settings = {**defaults, **given}
    depth = settings["depth"]
    # The four maps that dense heads take: the stem's two, then the middle and the end of the blocks (TAPADL segments
    # with 128, 256, C, C channels; which block gives the third is our choice), or the quarters of the depth.
    if settings.get("stem_depths") is not None:
        chosen = (0, 1, 1 + depth // 2, 1 + depth)
    else:
        chosen = tuple(max(depth * (part + 1) // 4 - 1, 0) for part in range(4))
    out_indices = settings.pop("out_indices", tuple(sorted(set(chosen))))
    feature_cfg = {"out_indices": out_indices, "feature_cls": "getter"}
    return build_model_with_cfg(FullyAttentionalNetwork, variant, pretrained, feature_cfg=feature_cfg, **settings)


@register_model
def fan_tiny_vit(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """FAN-T-ViT: 192 channels, 12 blocks, 4 heads."""
    return _create("fan_tiny_vit", pretrained, kwargs, embed_dim=192, depth=12, num_heads=4)


@register_model
def fan_small_vit(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """FAN-S-ViT: 384 channels, 12 blocks, 8 heads."""
    return _create("fan_small_vit", pretrained, kwargs, embed_dim=384, depth=12, num_heads=8)


@register_model
def fan_base_vit(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """FAN-B-ViT: 448 channels, 18 blocks, 8 heads."""
    return _create("fan_base_vit", pretrained, kwargs, embed_dim=448, depth=18, num_heads=8)


@register_model
def fan_large_vit(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """FAN-L-ViT: 480 channels, 24 blocks, 10 heads."""
    large = {"embed_dim": 480, "depth": 24, "num_heads": 10, "head_scale": 0.001}
    return _create("fan_large_vit", pretrained, kwargs, **large)


@register_model
def fan_tiny_hybrid(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """FAN-T-Hybrid: 192 channels, 8 blocks, 8 heads."""
    return _create("fan_tiny_hybrid", pretrained, kwargs, embed_dim=192, depth=8, num_heads=8, stem_depths=(3, 3))


@register_model
def fan_small_hybrid(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """FAN-S-Hybrid: 384 channels, 10 blocks, 8 heads."""
    return _create("fan_small_hybrid", pretrained, kwargs, embed_dim=384, depth=10, num_heads=8, stem_depths=(3, 3))


@register_model
def fan_base_hybrid(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """FAN-B-Hybrid: 448 channels, 16 blocks, 8 heads."""
    return _create("fan_base_hybrid", pretrained, kwargs, embed_dim=448, depth=16, num_heads=8, stem_depths=(3, 3))


@register_model
def fan_large_hybrid(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """FAN-L-Hybrid: 480 channels, 22 blocks, 10 heads, 5 blocks in the stem's second stage."""
    large = {"embed_dim": 480, "depth": 22, "num_heads": 10, "stem_depths": (3, 5), "head_scale": 0.001}
    return _create("fan_large_hybrid", pretrained, kwargs, **large)
