"""PVT, the Pyramid Vision Transformer (version 1), Ti, S, M and L.

Source: Wang et al., "Pyramid Vision Transformer: A Versatile Backbone for Dense Prediction without Convolutions" (ICCV
2021); used in CB (Table S14). Four stages at strides 4, 8, 16 and 32; each embeds patches (of side 4, then 2), adds a
learned position embedding, and runs pre-norm blocks whose keys and values are computed from a map reduced R times in
each direction (spatial-reduction attention, R = 8, 4, 2, 1). The class token is added in the last stage.

The block is that of timm's Twins-PCPVT, which is based on this architecture: same norms, biases and reduction. Twins
has a positional convolution instead of the position embeddings and no class token; these are implemented here.

With the same weights, outputs agree with those of the released class to 2e-6. Parameters (and as the paper prints
them): Ti 13,229,288 (13.2 M), S 24,485,864 (24.5 M), M 44,208,104 (44.2 M), L 61,369,320 (61.4 M). Position embeddings
are interpolated for other image sizes; images must be at least 32 pixels high and wide. Position embeddings and class
token have no weight decay, as in timm's ViT: our choice.

Shape legend: B batch, N tokens, D channels, h w grid, R reduction.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from timm.layers import PatchEmbed, calculate_drop_path_rates, resample_abs_pos_embed, to_2tuple, trunc_normal_
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models._features import feature_take_indices
from timm.models.twins import Block
from torch import Tensor, nn

from vitlab.models._checkpointing import checkpoint_block, is_scripting
from vitlab.models._imagenet import imagenet_cfg

__all__ = ["PyramidVisionTransformer"]

PAPER = {
    "pvt_tiny": {"params_m": 13.2, "macs_g": 1.9, "exact_params": 13_229_288},
    "pvt_small": {"params_m": 24.5, "macs_g": 3.8, "exact_params": 24_485_864},
    "pvt_medium": {"params_m": 44.2, "macs_g": 6.7, "exact_params": 44_208_104},
    "pvt_large": {"params_m": 61.4, "macs_g": 9.8, "exact_params": 61_369_320},
}


class PyramidStage(nn.Module):
    """One stage: patches, position embedding, blocks.

    Args:
        grid: rows and columns of the position embedding.
        patch: side of a patch, in positions of the previous map.
        class_token: whether a class token is added; it requires R = 1, because it has no position on the map.
    """

    def __init__(
        self,
        grid: tuple[int, int],
        patch: int,
        in_chans: int,
        dim: int,
        num_heads: int,
        mlp_ratio: float,
        reduction: int,
        drop_path: list[float],
        class_token: bool,
        **rates: Any,
    ) -> None:
        super().__init__()
        if class_token and reduction > 1:
            raise ValueError(f"the stage with the class token needs reduction 1, got {reduction}")
        self.grid = grid
        self.prefix = int(class_token)
        self.patch_embed = PatchEmbed(None, patch, in_chans, dim, norm_layer=nn.LayerNorm, output_fmt="NHWC")
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if class_token else None
        self.pos_embed = nn.Parameter(torch.zeros(1, self.prefix + grid[0] * grid[1], dim))
        norm: Any = partial(nn.LayerNorm, eps=1e-6)
        self.blocks = nn.ModuleList(
            Block(dim, num_heads, mlp_ratio, drop_path=rate, norm_layer=norm, sr_ratio=reduction, ws=1, **rates)
            for rate in drop_path
        )
        self.grad_checkpointing = False

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(B, C, H, W) -> tokens (B, prefix + h·w, D) and (h, w)."""
        x = self.patch_embed(x)
        grid = (x.shape[1], x.shape[2])
        x = x.flatten(1, 2)
        if self.cls_token is not None:
            x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = x + resample_abs_pos_embed(self.pos_embed, grid, self.grid, num_prefix_tokens=self.prefix)
        for block in self.blocks:
            if self.grad_checkpointing and not is_scripting():  # noqa: SIM108 (TorchScript needs a statement)
                x = checkpoint_block(block, x, grid)
            else:
                x = block(x, grid)
        return x, grid

    def to_map(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """Returns the tokens without the class token as a map: (B, prefix + h·w, D) -> (B, D, h, w)."""
        return tokens[:, self.prefix :].transpose(1, 2).unflatten(2, [grid[0], grid[1]]).contiguous()


class PyramidVisionTransformer(nn.Module):
    """PVT (Wang et al. 2021).

    Args:
        depths, embed_dims, num_heads, mlp_ratios: blocks, D, heads and MLP expansion of each stage.
        sr_ratios: reduction R of the map for keys and values in each stage, in each direction.
        global_pool: `token`, `avg` (over the last map, without the class token) or `""`.
    """

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 4,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "token",
        depths: tuple[int, ...] = (2, 2, 2, 2),
        embed_dims: tuple[int, ...] = (64, 128, 320, 512),
        num_heads: tuple[int, ...] = (1, 2, 5, 8),
        mlp_ratios: tuple[float, ...] = (8, 8, 4, 4),
        sr_ratios: tuple[int, ...] = (8, 4, 2, 1),
        drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_classes, self.in_chans, self.global_pool = num_classes, in_chans, global_pool
        self.img_size: tuple[int, int] = to_2tuple(img_size)
        self.num_features = self.head_hidden_size = embed_dims[-1]
        self.feature_info: list[dict[str, Any]] = []
        self.stages = nn.ModuleList()
        rates: Any = calculate_drop_path_rates(drop_path_rate, list(depths), stagewise=True)
        (h, w), patch, width = self.img_size, patch_size, in_chans
        for i, dim in enumerate(embed_dims):
            h, w = h // patch, w // patch
            last = i == len(embed_dims) - 1
            self.stages.append(
                PyramidStage(
                    (h, w), patch, width, dim, num_heads[i], mlp_ratios[i], sr_ratios[i], rates[i], last,
                    proj_drop=proj_drop_rate, attn_drop=attn_drop_rate,
                )
            )  # fmt: skip
            self.feature_info.append({"num_chs": dim, "reduction": patch_size * 2**i, "module": f"stages.{i}"})
            patch, width = 2, dim
        self.norm: nn.Module = nn.LayerNorm(self.num_features, eps=1e-6)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()
        self.init_weights()

    def init_weights(self) -> None:
        """Linear layers, position embeddings and the class token from a truncated normal of 0.02, biases zero."""
        for name, parameter in self.named_parameters():
            if name.endswith(("pos_embed", "cls_token")):
                trunc_normal_(parameter, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def no_weight_decay(self) -> set[str]:
        """The position embeddings and the class token."""
        return {name for name, _ in self.named_parameters() if name.endswith(("pos_embed", "cls_token"))}

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Parameter groups by depth, for layer-wise learning rates."""
        blocks = r"^stages\.(\d+)" if coarse else [(r"^stages\.(\d+)\.blocks\.(\d+)", None), (r"^stages\.(\d+)", (0,))]
        return {"stem": r"^stages\.0\.(?:patch_embed|pos_embed)", "blocks": blocks}

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute blocks in the backward pass instead of storing their activations."""
        stages: Any = self.stages
        for stage in stages:
            stage.grad_checkpointing = enable

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def get_classifier(self) -> nn.Module:
        """The last linear layer."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the last layer, for another number of classes."""
        self.num_classes = num_classes
        if global_pool is not None:
            self.global_pool = global_pool
        weight: Any = self.stages[0].pos_embed
        head = nn.Linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()
        self.head = head.to(weight.device, weight.dtype).train(self.training)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Returns the maps of the chosen stages, (B, D, h, w) each, and the last tokens, as in timm.

        Only the last stage has a norm, so `norm` applies only to it.
        """
        if output_fmt != "NCHW":
            raise ValueError(f"invalid output_fmt={output_fmt!r}; PVT supports only 'NCHW'")
        wanted, last = feature_take_indices(len(self.stages), indices)
        maps = []
        stages: Any = self.stages[: last + 1] if stop_early else self.stages
        for i, stage in enumerate(stages):
            tokens, grid = stage(x)
            x = stage.to_map(tokens, grid)
            if i in wanted:
                normed = norm and i == len(self.feature_info) - 1
                maps.append(stage.to_map(self.norm(tokens), grid) if normed else x)
        return maps if intermediates_only else (self.norm(tokens), maps)

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove the stages after the last chosen one."""
        wanted, last = feature_take_indices(len(self.stages), indices)
        self.stages = self.stages[: last + 1]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return list(wanted)

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> the normed tokens of the last stage, (B, 1 + h·w, D), class token first."""
        tokens = x
        for stage in self.stages:
            tokens, grid = stage(x)
            x = stage.to_map(tokens, grid)  # type: ignore[operator]
        return self.norm(tokens)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """(B, 1 + h·w, D) -> (B, classes)."""
        if self.global_pool == "token":
            x = x[:, 0]
        elif self.global_pool == "avg":
            x = x[:, self.stages[-1].prefix :].mean(dim=1)
        x = self.head_drop(x)
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, classes)."""
        return self.forward_head(self.forward_features(x))


default_cfgs = generate_default_cfgs({name: imagenet_cfg("stages.0.patch_embed.proj") for name in PAPER})


def _create(name: str, pretrained: bool, **settings: Any) -> PyramidVisionTransformer:
    features = {"out_indices": settings.pop("out_indices", len(settings["depths"])), "feature_cls": "getter"}
    return build_model_with_cfg(PyramidVisionTransformer, name, pretrained, feature_cfg=features, **settings)


@register_model
def pvt_tiny(pretrained: bool = False, **settings: Any) -> PyramidVisionTransformer:
    """PVT-Tiny."""
    return _create("pvt_tiny", pretrained, **{"depths": (2, 2, 2, 2), **settings})


@register_model
def pvt_small(pretrained: bool = False, **settings: Any) -> PyramidVisionTransformer:
    """PVT-Small."""
    return _create("pvt_small", pretrained, **{"depths": (3, 4, 6, 3), **settings})


@register_model
def pvt_medium(pretrained: bool = False, **settings: Any) -> PyramidVisionTransformer:
    """PVT-Medium."""
    return _create("pvt_medium", pretrained, **{"depths": (3, 4, 18, 3), **settings})


@register_model
def pvt_large(pretrained: bool = False, **settings: Any) -> PyramidVisionTransformer:
    """PVT-Large."""
    return _create("pvt_large", pretrained, **{"depths": (3, 8, 27, 3), **settings})
