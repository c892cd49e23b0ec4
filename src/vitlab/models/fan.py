"""FAN: fully attentional networks, whose MLP is gated by attention over channels; plain and hybrid.

Source: Zhou et al., "Understanding The Robustness in Vision Transformers" (ICML 2022), the baseline of "Robustifying
Token Attention for Vision Transformers" (TAPADL). Its public code has a non-commercial licence: this file was written
from a description of the architecture, without reading that code.

FAN has the structure of XCiT (convolutional or ConvNeXt stem, Fourier position encoding, blocks, class attention at the
end), so the model is timm's Xcit with other blocks, and another stem for the hybrids.

Where the paper, the released model and this file differ:

- The released model projects q separately from k and v; here they are packed into one layer with the same map,
  parameters and initialisation, so that parts that replace attention work.
- Channel attention has the form of the released model, not of Eq. 6 of the paper, which no released code has.
- Printed parameters are mostly truncated after one digit. FAN-S-ViT (28.0 printed, 28.3 here), FAN-B-ViT (54.0, 54.4)
  and FAN-S-Hybrid (26.3, 26.1) differ by 0.2 to 0.35 M, 1.2 % at most; our counts are exactly those of the released
  model.
- Multiply-accumulates of FAN-B-Hybrid: 11.77 G here, 11.7 in TAPADL, probably truncated. No other count is published.
- The classifier of FAN-L-Hybrid is initialised 1000 times smaller; that of FAN-L-ViT is not.
- The norms of the ConvNeXt stages of the hybrids use the unbiased variance, as in the released model; the paper does
  not mention it. `stem_unbiased=False` gives the usual LayerNorm, with the same parameters.
- Stochastic depth has the same rate in all blocks; the stem has none.
- The temperatures of channel attention have weight decay, as in the released code, which exempts them only in a
  submodule whose list the optimiser does not read.
- Maps for dense heads: TAPADL uses FAN-B-Hybrid for segmentation with the two stages of the stem, the last block and
  the patch tokens after both class-attention blocks (128, 256, 448, 448 channels); `features_only=True` gives these.
  The same maps for the other hybrids, and those after each quarter of the depth for FAN-ViT, are our choice.

Shape legend: B batch, H heads, N tokens, C channels, h w grid.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from timm.layers import Attention, DropPath, to_2tuple
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models._features import feature_take_indices
from timm.models.xcit import LPI, Xcit
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.models._checkpointing import checkpoint_block, is_scripting
from vitlab.models._hybrid_stem import HybridPatchEmbed
from vitlab.models._imagenet import imagenet_cfg

__all__ = ["FullyAttentionalNetwork"]

#: Printed numbers of the papers (FAN, and TAPADL for multiply-accumulates), and exact counts.
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
    """The gate of each channel: τ · sigmoid(softmax_N(q)ᵀ · mean_c softmax_N(k)).

    Every channel of q attends over tokens; every head of k weights the tokens.

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

    The only activation is the one inside DW. γ is initialised with ones.
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
    """x + γ₁ · attention(LN(x)), then x + γ₂ · channel processing(LN(x)); both γ are initialised with ones."""

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


class FullyAttentionalNetwork(Xcit):
    """FAN: stem, Fourier position encoding, fully attentional blocks, two class-attention blocks, classifier.

    Args:
        img_size: the default image size; no parameter depends on it.
        stem_depths: blocks of the two ConvNeXt stages of the hybrids; None for four 3×3 convolutions (FAN-ViT).
        stem_dims: their channels.
        stem_unbiased: whether their norms use the unbiased variance, as in the released model.
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
        stem_unbiased: bool = True,
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
            depth=0,  # the blocks are replaced below
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
        self.feature_info = [
            {"num_chs": embed_dim, "reduction": 16, "module": name}
            for name in (*(f"blocks.{i}" for i in range(depth)), f"cls_attn_blocks.{cls_attn_layers - 1}")
        ]
        if stem_depths is not None:
            stem = HybridPatchEmbed(in_chans, embed_dim, stem_depths, stem_dims, stem_unbiased)
            self.patch_embed = stem  # type: ignore[assignment]
            self.feature_info = [
                {"num_chs": dim, "reduction": 4 * 2**stage, "module": f"patch_embed.stages.{stage}"}
                for stage, dim in enumerate(stem_dims)
            ] + self.feature_info
        if isinstance(self.head, nn.Linear):
            with torch.no_grad():
                self.head.weight.mul_(head_scale)

    def no_weight_decay(self) -> set[str]:
        """Only the class token, as in the released code: the temperatures have weight decay."""
        return {"cls_token"}

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 1 + N, C), class token first, normalised."""
        x, (h, w) = self.patch_embed(x)
        x = self.pos_drop(x + self.pos_embed(x.shape[0], h, w).flatten(2).transpose(1, 2))
        for block in self.blocks:
            if self.grad_checkpointing and not is_scripting():  # noqa: SIM108 (TorchScript needs a statement)
                x = checkpoint_block(block, x, h, w)
            else:
                x = block(x, h, w)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        for block in self.cls_attn_blocks:
            if self.grad_checkpointing and not is_scripting():  # noqa: SIM108 (TorchScript needs a statement)
                x = checkpoint_block(block, x)
            else:
                x = block(x)
        return self.norm(x)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Returns the maps at the chosen entries of `feature_info`.

        In order: the two stages of the stem (hybrids), the blocks, and the patch tokens after the class attention.
        """
        if output_fmt != "NCHW":
            raise VitlabError(f"invalid output_fmt={output_fmt!r}; FAN supports only 'NCHW'")
        take, last = feature_take_indices(len(self.feature_info), indices)
        stem: list[Tensor] = []
        if isinstance(self.patch_embed, HybridPatchEmbed):
            stem = self.patch_embed.forward_stages(x)
            x, grid = self.patch_embed.embed(stem[-1])
        else:
            x, grid = self.patch_embed(x)

        def as_map(tokens: Tensor) -> Tensor:
            return (self.norm(tokens) if norm else tokens).transpose(1, 2).unflatten(2, grid)

        maps = [stage for index, stage in enumerate(stem) if index in take]
        x = self.pos_drop(x + self.pos_embed(x.shape[0], *grid).flatten(2).transpose(1, 2))
        for index, block in enumerate(self.blocks, start=len(stem)):
            if stop_early and index > last:
                break
            x = checkpoint_block(block, x, *grid) if self.grad_checkpointing else block(x, *grid)
            if index in take:
                maps.append(as_map(x))
        after = len(self.feature_info) - 1  # the entry after the class attention
        if intermediates_only and after not in take:
            return maps
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        for block in self.cls_attn_blocks:
            x = block(x)
        if after in take:
            maps.append(as_map(x[:, 1:]))
        return maps if intermediates_only else (self.norm(x), maps)

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove layers that the chosen maps do not need."""
        take, last = feature_take_indices(len(self.feature_info), indices)
        after = len(self.feature_info) - 1
        before = after - len(self.blocks)
        self.blocks = self.blocks[: max(last + 1 - before, 0)]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            if last < after:
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
    # The four maps for dense heads (see the module docstring); the last one is after the class attention.
    if settings.get("stem_depths") is not None:
        chosen = (0, 1, 1 + depth, 2 + depth)
    else:
        chosen = (*(max(depth * (part + 1) // 4 - 1, 0) for part in range(3)), depth)
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
    return _create("fan_large_vit", pretrained, kwargs, embed_dim=480, depth=24, num_heads=10)


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
