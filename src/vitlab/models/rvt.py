"""RVT: robust vision transformer, and RVT* with position-aware attention scaling.

Source: Mao et al., "Towards Robust Vision Transformer" (CVPR 2022), as used in "Robustifying Token Attention for Vision
Transformers" (TAPADL). Written from notes on the paper and the released code; no code is copied.

Differences between the paper, the released code and TAPADL's copy, and the choice made here:

- Masks. The released RVT-B* scales attention in its first 5 blocks, which gives 88,528,744 parameters. Both papers
  print 91.8 M, which is all 12 blocks: 91,755,688. `rvt_base_plus` follows the tables, `rvt_base_plus_released` the
  released code. Ti* (10 blocks) and S* (5 blocks) agree with their tables. A count beyond the blocks of the first stage
  is our extension of the released code.
- MLP. The released code has a plain MLP if C = 768, that is in RVT-B; TAPADL's copy always has the convolutional one.
  `conv_mlp` sets it: `rvt_base_plus_released(conv_mlp=True)` is TAPADL's code, 89,063,272 parameters.
- W_p is not initialised in the released code; here, as in TAPADL's copy, from a truncated normal with 0.02.
- W_p is fixed to 196 tokens in the released code. Here it has the grid of `img_size`, and is interpolated for images of
  other sizes.
- Printed parameters are rounded or truncated to one digit (10,951,336 is printed 10.9): no other difference.
- Multiply-accumulates: 1.28, 4.65 and 17.49 G here, 1.3, 4.7 and 17.7 printed, at most 1.2 % apart. Flop counters do
  not count elementwise operations (norms, activations, masks); how the printed numbers were counted is not known.

Shape legend: B batch, H heads, N tokens, C channels, h w grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import Attention, DropPath, Mlp, to_2tuple, trunc_normal_
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model, register_notrace_function
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.models._checkpointing import checkpoint_block, is_scripting
from vitlab.models._imagenet import imagenet_cfg

__all__ = ["RobustVisionTransformer"]

#: Printed numbers for RVT* (B: also TAPADL, Table 2, as "RVT-B"), and exact counts.
PAPER = {
    "rvt_tiny": {"params_m": None, "macs_g": None, "exact_params": 8_646_376},
    "rvt_small": {"params_m": None, "macs_g": None, "exact_params": 22_148_392},
    "rvt_base": {"params_m": None, "macs_g": None, "exact_params": 86_223_784},
    "rvt_tiny_plus": {"params_m": 10.9, "macs_g": 1.3, "exact_params": 10_951_336},
    "rvt_small_plus": {"params_m": 23.3, "macs_g": 4.7, "exact_params": 23_300_872},
    "rvt_base_plus": {"params_m": 91.8, "macs_g": 17.7, "exact_params": 91_755_688},
    "rvt_base_plus_released": {"params_m": None, "macs_g": None, "exact_params": 88_528_744},
}

Grid = tuple[int, int]
layer_norm = partial(nn.LayerNorm, eps=1e-6)


def to_tokens(x: Tensor) -> Tensor:
    """(B, C, h, w) -> (B, N, C), in row-major order."""
    return x.flatten(2).transpose(1, 2)


def to_map(x: Tensor, grid: Grid) -> Tensor:
    """(B, N, C) -> (B, C, h, w)."""
    return x.transpose(1, 2).unflatten(2, grid)


@register_notrace_function  # type: ignore[untyped-decorator]
def resize_position_importance(importance: Tensor, old: Grid, new: Grid) -> Tensor:
    """Interpolate W_p to another grid: bilinear along the keys, then along the queries.

    Our choice, because the released code supports one grid only. Bilinear interpolation keeps W_p within its range.

    Args:
        importance: (H, N, N) for the grid `old`.

    Returns:
        (H, N', N') for the grid `new`; the same tensor if the grids are equal.

    >>> resize_position_importance(torch.full((1, 4, 4), 2.0), (2, 2), (1, 3))
    tensor([[[2., 2., 2.],
             [2., 2., 2.],
             [2., 2., 2.]]])
    """
    if old[0] == new[0] and old[1] == new[1]:
        return importance
    for _ in range(2):  # resize the last axis, then transpose: keys first, then queries
        maps = F.interpolate(
            importance.unflatten(2, [old[0], old[1]]), size=[new[0], new[1]], mode="bilinear", align_corners=False
        )
        importance = maps.flatten(2).transpose(1, 2)
    return importance


class PositionAwareAttention(Attention):
    """Self-attention whose logits are scaled by a learned importance of each pair of positions (PAAS).

    softmax( (q kᵀ / √d) ⊙ sigmoid(W_p) ) v, W_p of (H, N, N) (RVT, "position-aware attention scaling"). For
    sigmoid(W_p) → 1 it is plain attention. The factor is not an additive mask, so the fused kernel cannot be used.

    Args:
        dim: C.
        num_heads: H.
        grid: rows and columns of tokens that W_p is stored for.
    """

    def __init__(self, dim: int, num_heads: int, grid: Grid, **settings: Any) -> None:
        super().__init__(dim, num_heads=num_heads, **settings)
        self.grid = grid
        tokens = grid[0] * grid[1]
        self.position_importance = nn.Parameter(torch.empty(num_heads, tokens, tokens))
        trunc_normal_(self.position_importance, std=0.02)

    def forward(self, x: Tensor, grid: Grid) -> Tensor:  # type: ignore[override]
        """(B, N, C) -> (B, N, C), the tokens lying on `grid`."""
        q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        importance = resize_position_importance(self.position_importance, self.grid, grid).sigmoid()
        weights = ((q * self.scale) @ k.transpose(-2, -1) * importance).softmax(dim=-1)
        mixed = self.attn_drop(weights) @ v
        projected: Tensor = self.proj_drop(self.proj(mixed.transpose(1, 2).flatten(2)))
        return projected


class ConvolutionalMlp(nn.Module):
    """The MLP with a depthwise 3×3 convolution between its layers.

    1×1 (C→4C), BN, GELU; depthwise 3×3, BN, GELU; 1×1 (4C→C), BN. All three convolutions have a bias.
    """

    def __init__(self, dim: int, hidden: int, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(dim, hidden, 1)
        self.norm1 = nn.BatchNorm2d(hidden)
        self.depthwise = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.norm2 = nn.BatchNorm2d(hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Conv2d(hidden, dim, 1)
        self.norm3 = nn.BatchNorm2d(dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """(B, N, C) -> (B, N, C), the tokens lying on `grid`."""
        x = to_map(x, grid)
        x = self.act(self.norm1(self.fc1(x)))
        x = self.drop(self.act(self.norm2(self.depthwise(x))))
        return to_tokens(self.drop(self.norm3(self.fc2(x))))


class RobustBlock(nn.Module):
    """x + attention(LN(x)), then x + mlp(LN(x)).

    Args:
        dim, num_heads: C, H.
        grid: if given, attention is scaled by position, with W_p for this grid.
        conv_mlp: whether the MLP has a depthwise convolution.
    """

    __constants__ = ("scales_by_position", "conv_mlp")  # TorchScript compiles only the branch that runs

    def __init__(
        self,
        dim: int,
        num_heads: int,
        grid: Grid | None = None,
        conv_mlp: bool = True,
        mlp_ratio: float = 4.0,
        proj_drop: float = 0.0,
        attn_drop: float = 0.0,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = int(dim * mlp_ratio)
        settings: dict[str, Any] = {"qkv_bias": True, "attn_drop": attn_drop, "proj_drop": proj_drop}
        self.norm1 = layer_norm(dim)
        self.attn = (
            Attention(dim, num_heads, **settings)
            if grid is None
            else PositionAwareAttention(dim, num_heads, grid, **settings)
        )
        self.drop_path1 = DropPath(drop_path)
        self.norm2 = layer_norm(dim)
        self.mlp = ConvolutionalMlp(dim, hidden, proj_drop) if conv_mlp else Mlp(dim, hidden, drop=proj_drop)
        self.drop_path2 = DropPath(drop_path)
        self.scales_by_position = grid is not None
        self.conv_mlp = conv_mlp

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """(B, N, C) -> (B, N, C), the tokens lying on `grid`."""
        normed = self.norm1(x)
        if self.scales_by_position:
            x = x + self.drop_path1(self.attn(normed, grid))
        else:
            x = x + self.drop_path1(self.attn(normed))
        normed = self.norm2(x)
        if self.conv_mlp:
            return x + self.drop_path2(self.mlp(normed, grid))
        else:
            return x + self.drop_path2(self.mlp(normed))


class RobustPatchEmbed(nn.Module):
    """Conv7×7 s2, BN, MaxPool3×3 s2, Conv4×4 s4, without an activation: 224 → 111 → 56 → 14.

    The first padding is 2, not 3, as in the released code.
    """

    def __init__(self, in_chans: int, dim: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_chans, 32, 7, stride=2, padding=2)
        self.norm = nn.BatchNorm2d(32)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.proj = nn.Conv2d(32, dim, 4, stride=4)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, C, h, w)."""
        return self.proj(self.pool(self.norm(self.conv(x))))

    @staticmethod
    def side(pixels: int) -> int:
        """The number of tokens along a side of the image.

        >>> RobustPatchEmbed.side(224), RobustPatchEmbed.side(64)
        (14, 4)
        """
        convolved = (pixels + 4 - 7) // 2 + 1
        return ((convolved - 1) // 2 + 1) // 4


class RobustStage(nn.Module):
    """Blocks of one resolution, after a strided depthwise convolution that widens the map (not in the first stage)."""

    def __init__(self, downsample: nn.Module, blocks: list[RobustBlock]) -> None:
        super().__init__()
        self.downsample = downsample
        self.blocks = nn.ModuleList(blocks)
        self.grad_checkpointing = False

    def forward_intermediates(self, x: Tensor, keep: list[int]) -> tuple[Tensor, list[Tensor]]:
        """Returns the map of the stage, and the maps after the blocks of these indices."""
        x = self.downsample(x)
        kept: list[Tensor] = []
        grid = (x.shape[2], x.shape[3])
        tokens = to_tokens(x)
        for index, block in enumerate(self.blocks):
            if self.grad_checkpointing and not is_scripting():
                tokens = checkpoint_block(block, tokens, grid)
            else:
                tokens = block(tokens, grid)
            if index in keep:
                kept.append(to_map(tokens, grid))
        return to_map(tokens, grid), kept

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C', h', w')."""
        keep: list[int] = []
        return self.forward_intermediates(x, keep)[0]


class RobustVisionTransformer(nn.Module):
    """RVT: convolutional stem, no position embedding, no class token, average pooling.

    Args:
        img_size: height and width that W_p is stored for; other sizes run too.
        embed_dims, depths, num_heads: one number per stage.
        masked_blocks: number of blocks, from the first, that scale attention by position (RVT*).
        conv_mlp: the MLP with a depthwise convolution; False: a plain one.
        drop_path_rate: block i of L drops its branches with rate·i/L (the last one stays below the rate).
    """

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        embed_dims: Sequence[int] = (384,),
        depths: Sequence[int] = (12,),
        num_heads: Sequence[int] = (6,),
        mlp_ratio: float = 4.0,
        masked_blocks: int = 0,
        conv_mlp: bool = True,
        drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        total = sum(depths)
        if not 0 <= masked_blocks <= total:
            raise VitlabError(
                f"invalid masked_blocks={masked_blocks}; expected 0 to {total}, the number of blocks of the model"
            )
        self.img_size: Grid = to_2tuple(img_size)
        self.num_classes = num_classes
        self.in_chans = in_chans
        self.num_features = self.head_hidden_size = embed_dims[-1]
        self.patch_embed = RobustPatchEmbed(in_chans, embed_dims[0])
        h, w = (RobustPatchEmbed.side(pixels) for pixels in self.img_size)
        self.stages = nn.ModuleList()
        self.feature_info: list[dict[str, Any]] = []
        for stage, (dim, depth, heads) in enumerate(zip(embed_dims, depths, num_heads, strict=True)):
            if stage:
                h, w = (h + 1) // 2, (w + 1) // 2
            blocks = []
            for position in range(depth):
                index = len(self.feature_info)
                blocks.append(
                    RobustBlock(
                        dim,
                        heads,
                        grid=(h, w) if index < masked_blocks else None,
                        conv_mlp=conv_mlp,
                        mlp_ratio=mlp_ratio,
                        proj_drop=proj_drop_rate,
                        attn_drop=attn_drop_rate,
                        drop_path=drop_path_rate * index / total,
                    )
                )
                module = f"stages.{stage}.blocks.{position}"
                self.feature_info.append({"num_chs": dim, "reduction": 16 * 2**stage, "module": module})
            self.stages.append(RobustStage(_downsample(embed_dims, stage), blocks))
        self.norm: nn.Module = layer_norm(self.num_features)
        self.head_drop = nn.Dropout(drop_rate)
        self.head: nn.Module = nn.Identity()
        self.reset_classifier(num_classes, global_pool)
        self.apply(_initialise)

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, C, h, w), the map before pooling and norm."""
        x = self.patch_embed(x)
        for stage in self.stages:
            x = stage(x)
        return x

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Average pooling, LN, classifier."""
        if self.global_pool:
            x = x.mean(dim=(2, 3))
            x = self.norm(x)
        else:
            x = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = self.head_drop(x)
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, classes)."""
        return self.forward_head(self.forward_features(x))

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Returns the maps after the chosen blocks, counted over all stages; arguments as in timm.

        The last norm has the width of the last stage, so `norm` applies only to its maps.
        """
        if output_fmt not in ("NCHW", "NLC"):
            raise VitlabError(f"invalid output_fmt={output_fmt!r}; expected 'NCHW' or 'NLC'")
        take, last = feature_take_indices(len(self.feature_info), indices)
        x, maps, first = self.patch_embed(x), [], 0
        stages: Any = self.stages
        for stage in stages:
            if stop_early and first > last:
                break
            x, kept = stage.forward_intermediates(x, [index - first for index in take])
            if norm and stage is stages[-1]:
                kept = [self.norm(each.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) for each in kept]
            maps += kept
            first += len(stage.blocks)
        if output_fmt == "NLC":
            maps = [to_tokens(kept) for kept in maps]
        return maps if intermediates_only else (x, maps)

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove layers that the chosen maps do not need."""
        take, last = feature_take_indices(len(self.feature_info), indices)
        stages: Any = self.stages
        for stage in stages:
            stage.blocks = stage.blocks[: max(last + 1, 0)]
            last -= len(stage.blocks)
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return take

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def get_classifier(self) -> nn.Module:
        """The last layer."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the classifier: number of classes (0 for none), and `avg` pooling or `""` for none."""
        if global_pool not in (None, "", "avg"):
            raise VitlabError(f"invalid global_pool={global_pool!r}; RVT supports 'avg' and ''")
        if global_pool is not None:
            self.global_pool = global_pool
        self.num_classes = num_classes
        weight = self.patch_embed.proj.weight
        self.head = (
            nn.Linear(self.num_features, num_classes, device=weight.device, dtype=weight.dtype)
            if num_classes > 0
            else nn.Identity()
        )

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Parameter groups by depth, for layer-wise learning rates."""
        block = r"^stages\.(\d+)" if coarse else r"^stages\.(\d+)\.blocks\.(\d+)"
        return {
            "stem": r"^patch_embed",
            "blocks": [(block, None), (r"^stages\.(\d+)\.downsample", (0,)), (r"^norm", (99999,))],
        }

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute each block in the backward pass."""
        stages: Any = self.stages
        for stage in stages:
            stage.grad_checkpointing = enable


def _downsample(dims: Sequence[int], stage: int) -> nn.Module:
    """Returns a 3×3 convolution with stride 2 and one group per input channel; the identity for the first stage."""
    if stage == 0:
        return nn.Identity()
    return nn.Conv2d(dims[stage - 1], dims[stage], 3, stride=2, padding=1, groups=dims[stage - 1])


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def checkpoint_filter_fn(state_dict: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Interpolate the masks of a checkpoint to the grid of a model that was built for another image size.

    A checkpoint does not store its grid: if the number of tokens differs, it must be a square number.
    """
    fitted = dict(state_dict)
    for path, module in model.named_modules():
        name = f"{path}.position_importance"
        if not isinstance(module, PositionAwareAttention) or name not in fitted:
            continue
        tokens, (h, w) = fitted[name].shape[-1], module.grid
        if tokens == h * w:
            continue
        side = math.isqrt(tokens)
        if side**2 != tokens:
            raise VitlabError(
                f"{name} has {tokens} tokens, which is not a square number; use resize_position_importance"
            )
        fitted[name] = resize_position_importance(fitted[name], (side, side), (h, w))
    return fitted


default_cfgs = generate_default_cfgs(
    {
        # RVT-Ti halves the map once
        f"{name}.untrained": imagenet_cfg("patch_embed.conv", pool_size=(7, 7) if "tiny" in name else (14, 14))
        for name in PAPER
    }
)


def _create(variant: str, pretrained: bool, given: dict[str, Any], **defaults: Any) -> nn.Module:
    settings = {**defaults, **given}
    depth = sum(settings["depths"])
    quarters = tuple(depth * (part + 1) // 4 - 1 for part in range(4)) if depth >= 4 else tuple(range(depth))
    out_indices = settings.pop("out_indices", quarters)
    return build_model_with_cfg(
        RobustVisionTransformer,
        variant,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": out_indices, "feature_cls": "getter"},
        **settings,
    )


_TINY = {"embed_dims": (192, 384), "depths": (10, 2), "num_heads": (6, 12)}
_SMALL = {"embed_dims": (384,), "depths": (12,), "num_heads": (6,)}
_BASE = {"embed_dims": (768,), "depths": (12,), "num_heads": (12,), "conv_mlp": False}


@register_model
def rvt_tiny(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """RVT-Ti: 192 channels, 10 blocks, then 384 channels, 2 blocks at half the resolution."""
    return _create("rvt_tiny", pretrained, kwargs, **_TINY)


@register_model
def rvt_small(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """RVT-S: 384 channels, 12 blocks."""
    return _create("rvt_small", pretrained, kwargs, **_SMALL)


@register_model
def rvt_base(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """RVT-B: 768 channels, 12 blocks, plain MLP."""
    return _create("rvt_base", pretrained, kwargs, **_BASE)


@register_model
def rvt_tiny_plus(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """RVT-Ti*: scaled attention in the 10 blocks of the first stage."""
    return _create("rvt_tiny_plus", pretrained, kwargs, **_TINY, masked_blocks=10)


@register_model
def rvt_small_plus(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """RVT-S*: scaled attention in the first 5 blocks."""
    return _create("rvt_small_plus", pretrained, kwargs, **_SMALL, masked_blocks=5)


@register_model
def rvt_base_plus(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """RVT-B*: scaled attention in all 12 blocks, as the papers' tables count it."""
    return _create("rvt_base_plus", pretrained, kwargs, **_BASE, masked_blocks=12)


@register_model
def rvt_base_plus_released(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """RVT-B* as it was released: scaled attention in the first 5 blocks."""
    return _create("rvt_base_plus_released", pretrained, kwargs, **_BASE, masked_blocks=5)
