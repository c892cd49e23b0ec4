"""AlterNet: ResNets with local self-attention instead of convolution blocks at the end of the stages.

Source: "How Do Vision Transformers Work?" (HDVW), Sec. 4, App. E, Figs. 11, 12a, D.5. Alter-ResNet-18/34/50/101, for
ImageNet (window 7) and for small images (window 4), on pre-activation ResNet, post-activation ResNet and ResNeXt 32×4d.

Paper and released code:

- The last stage has one more block than in ResNet (34, 50, 101), so that the number of blocks is even.
- A stage of n blocks with m MSAs is n − 2m convolution blocks, then m times (convolution, MSA).
- The plan, MSAs per stage, is (0, 1, 3, 2) in the code, which are the 6 MSAs of Fig. D.5 (ImageNet). For CIFAR-100 the
  text says that all stages except the first end with an MSA and that more than one in stage 3 harms: (0, 1, 1, 2), our
  interpretation of Fig. 11, which is not legible: `alternet50_cifar`. `alternet50_cifar_released` has the code's plan.
  Alter-18: (0, 1, 1, 1).
- Swin's window attention without shift. The code's relative position bias is one table shared by all heads (Swin: one
  per head), a head has 64 channels, and the default window of 7 does not run on CIFAR. Here any map size is supported:
  a map that windows do not tile is padded, and the padded keys are masked.
- An MSA block has GELU, no activation between its second norm and attention, and no MLP.
- HDVW reports that the rule also helps post-activation ResNet and ResNeXt, without numbers or plans. The MSA block for
  these is the code's "A"; it ends without an activation. Stem and classifier are those of the base network. ResNeXt
  has bottlenecks only.

Parameters, all exact: alternet50 35,915,038; alternet50_cifar (100 classes) 33,012,840, alternet50_cifar_released
34,062,538, and the latter with heads of 32 channels 26,321,098. HDVW prints no count. An MSA block is larger than
the bottleneck that it replaces: heads of 64 channels make q, k and v three times as wide as their input. HDVW calls
the two blocks' costs "almost the same"; in stage 3 on CIFAR they are 106 and 71 M multiply-accumulates (62 M with heads
of 32). The initialisation is PyTorch's default, as in the code.

Shape legend: B batch, C channels, h w grid, T windows, N tokens of a window, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from timm.layers import BatchNormAct2d, DropPath
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model, register_notrace_module
from timm.models.resnet import BasicBlock, Bottleneck, downsample_conv
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.core.errors import VitlabError, unknown
from vitlab.models._staged_network import StagedNetwork
from vitlab.models.preact_resnet import (
    drop_path_rates,
    first_convolution,
    image_settings,
    preact_block,
    preact_stem,
    stage_channels,
)

PAPER = {
    "alternet18": {"params_m": None, "macs_g": None, "exact_params": 9_968_803},
    "alternet34": {"params_m": None, "macs_g": None, "exact_params": 22_833_054},
    "alternet50": {"params_m": None, "macs_g": None, "exact_params": 35_915_038},
    "alternet101": {"params_m": None, "macs_g": None, "exact_params": 54_907_166},
    "alternet18_cifar": {"params_m": None, "macs_g": None, "exact_params": 9_499_063},
    "alternet34_cifar": {"params_m": None, "macs_g": None, "exact_params": None},
    "alternet50_cifar": {"params_m": None, "macs_g": None, "exact_params": 33_012_840},
    "alternet50_cifar_released": {"params_m": None, "macs_g": None, "exact_params": 34_062_538},
    "alternet101_cifar": {"params_m": None, "macs_g": None, "exact_params": None},
}

BASES = ("preact", "resnet", "resnext")


def block_kinds(depth: int, attentions: int) -> tuple[str, ...]:
    """The kinds of the blocks of a stage: convolutions, then alternating convolution and MSA.

    >>> block_kinds(6, 2)
    ('Conv', 'Conv', 'Conv', 'MSA', 'Conv', 'MSA')
    """
    return ("Conv",) * (depth - 2 * attentions) + ("Conv", "MSA") * attentions


def block_plan(model: StagedNetwork) -> str:
    """The blocks of a network as text, as in HDVW Figs. 11 and D.5: Conv, MSA, and /2 for blocks that subsample.

    >>> print(block_plan(AlterNet((1, 2), (0, 1), width=8, heads=(1, 1))))
    stage 1: Conv
    stage 2: Conv/2 MSA
    """
    return "\n".join(
        f"stage {number}: " + " ".join(_kind(block) for block in stage.children())
        for number, stage in enumerate(model.stages, start=1)
    )


def _kind(block: nn.Module) -> str:
    if isinstance(block, (AttentionBlock, PostActAttentionBlock)):
        return "MSA"
    subsamples = any(max(layer.stride) > 1 for layer in block.modules() if isinstance(layer, nn.Conv2d))
    return "Conv/2" if subsamples else "Conv"


def to_windows(x: Tensor, window: tuple[int, int]) -> Tensor:
    """Split maps into windows that tile them: (B, C, h, w) -> (B·T, N, C), the window index varying fastest."""
    images, channels, h, w = x.shape
    x = x.reshape(images, channels, h // window[0], window[0], w // window[1], window[1])  # B C rows p columns q
    return x.permute(0, 2, 4, 3, 5, 1).reshape(-1, window[0] * window[1], channels)


def from_windows(windows: Tensor, window: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """The inverse of `to_windows`: (B·T, N, C) -> (B, C, h, w)."""
    rows, columns = grid[0] // window[0], grid[1] // window[1]
    x = windows.reshape(-1, rows, columns, window[0], window[1], windows.shape[-1])
    return x.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


@register_notrace_module  # the number of windows depends on the size of the map
class WindowAttention(nn.Module):
    """Self-attention inside windows: softmax(q kᵀ / √d + bias) v (HDVW App. E, after Swin).

    The bias depends on the offset from query to key, in one table for all heads. There is no shift. The projections of
    q, k and v have no bias; the output projection has one.

    A map that windows do not tile is padded at the bottom and right; padded keys have weight 0. If a map is smaller
    than the window, the window has the size of the map, which gives the same numbers as padding.

    Args:
        dim: channels in.
        dim_out: channels out.
        num_heads: H.
        head_dim: d, channels of a head.
        window_size: rows and columns of a window.
    """

    def __init__(self, dim: int, dim_out: int, num_heads: int, head_dim: int = 64, window_size: int = 7) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.window_size = num_heads, head_dim, window_size
        self.qkv = nn.Linear(dim, 3 * num_heads * head_dim, bias=False)
        self.proj = nn.Linear(num_heads * head_dim, dim_out)
        self.relative_position_bias = nn.Parameter(0.02 * torch.randn(2 * window_size - 1, 2 * window_size - 1))

    def forward(self, x: Tensor) -> Tensor:
        """(B, dim, h, w) -> (B, dim_out, h, w)."""
        images, _, h, w = x.shape
        window = (min(self.window_size, h), min(self.window_size, w))
        below, right = -h % window[0], -w % window[1]
        tokens = to_windows(F.pad(x, [0, right, 0, below]), window)
        # (B·T, N, 3·H·d) -> three of (B·T, H, N, d)
        qkv = self.qkv(tokens).unflatten(2, [3, self.num_heads, self.head_dim]).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        bias = self.bias(window).to(q.dtype)
        if below > 0 or right > 0:
            bias = bias + _hidden_keys((h, w), (below, right), window, bias).repeat(images, 1, 1, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        mixed = self.proj(mixed.transpose(1, 2).flatten(2))
        return from_windows(mixed, window, (h + below, w + right))[:, :, :h, :w]

    def bias(self, window: tuple[int, int]) -> Tensor:
        """The bias of every query and key of a window, (N, N): entry (key − query) of the table, centred at 0."""
        rows, columns = self._offsets(window[0]), self._offsets(window[1])
        return self.relative_position_bias[rows[:, None, :, None], columns[None, :, None, :]].flatten(2).flatten(0, 1)

    def _offsets(self, size: int) -> Tensor:
        position = torch.arange(size, device=self.relative_position_bias.device)
        return position[None, :] - position[:, None] + self.window_size - 1


def _hidden_keys(grid: tuple[int, int], pad: tuple[int, int], window: tuple[int, int], like: Tensor) -> Tensor:
    """−∞ at keys that are padding, else 0: (T, 1, 1, N)."""
    hidden = F.pad(like.new_zeros([1, 1, grid[0], grid[1]]), [0, pad[1], 0, pad[0]], value=float("-inf"))
    return to_windows(hidden, window).squeeze(-1)[:, None, None, :]


class AttentionBlock(nn.Module):
    """The MSA block for pre-activation networks: x + attention(norm(conv1×1(gelu(norm(x))))).

    It is never the first block of a stage, so its skip connection needs no projection.

    Args:
        channels: C, in and out.
        width: channels between the convolution and attention.
        drop_path: stochastic depth.
        attention: settings of `WindowAttention`.
    """

    def __init__(self, channels: int, width: int, drop_path: float = 0.0, **attention: int) -> None:
        super().__init__()
        self.norm1 = BatchNormAct2d(channels, act_layer=nn.GELU)
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.attn = WindowAttention(width, channels, **attention)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C, h, w)."""
        branch: Tensor = self.drop_path(self.attn(self.norm2(self.conv1(self.norm1(x)))))
        return x + branch


class PostActAttentionBlock(nn.Module):
    """The MSA block for post-activation networks: x + norm(attention(gelu(norm(conv1×1(x))))).

    Arguments as in `AttentionBlock`. No activation after the sum, as in HDVW's code.
    """

    def __init__(self, channels: int, width: int, drop_path: float = 0.0, **attention: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.norm1 = BatchNormAct2d(width, act_layer=nn.GELU)
        self.attn = WindowAttention(width, channels, **attention)
        self.norm2 = nn.BatchNorm2d(channels)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C, h, w)."""
        branch: Tensor = self.drop_path(self.norm2(self.attn(self.norm1(self.conv1(x)))))
        return x + branch


class AlterNet(StagedNetwork):
    """A ResNet with MSAs at the end of its stages.

    Args:
        depths: blocks per stage.
        plan: MSAs per stage; all zeros is the base network.
        base: `preact`, `resnet` (post-activation) or `resnext` (32×4d).
        bottleneck: whether convolution blocks are bottlenecks (50, 101) or two 3×3 convolutions (18, 34).
        width: channels of the stem; doubled in each stage.
        heads: heads of the MSAs of each stage.
        head_dim: channels of a head.
        window_size: rows and columns of a window; by default 4 for small images and 7 for others.
        small_images: the CIFAR stem.
        drop_path_rate: stochastic depth of the last block, rising linearly from 0 at the first.
        settings: `num_classes`, `global_pool`, `drop_rate`, `img_size` of `StagedNetwork`.
    """

    def __init__(
        self,
        depths: Sequence[int] = (3, 4, 6, 4),
        plan: Sequence[int] = (0, 1, 3, 2),
        base: str = "preact",
        bottleneck: bool = True,
        width: int = 64,
        heads: Sequence[int] = (3, 6, 12, 24),
        head_dim: int = 64,
        window_size: int | None = None,
        small_images: bool = False,
        in_chans: int = 3,
        drop_path_rate: float = 0.0,
        **settings: Any,
    ) -> None:
        _check(depths, plan, base, bottleneck, heads)
        channels = stage_channels(depths, width, bottleneck)
        attention = {"head_dim": head_dim, "window_size": window_size or (4 if small_images else 7)}
        msa = AttentionBlock if base == "preact" else PostActAttentionBlock

        def block(kind: str, stage: int, index: int, rate: float) -> nn.Module:
            before, after = channels[stage], channels[stage + 1]
            if kind == "MSA":
                inner = after // 4 if bottleneck else after
                return msa(after, inner, rate, num_heads=heads[stage], **attention)
            if base == "preact":
                return preact_block(before, after, stage, index, bottleneck, rate)
            return post_activation_block(before, after, stage, index, bottleneck, rate, grouped=base == "resnext")

        stages = [
            [block(kind, stage, index, rate) for index, (kind, rate) in enumerate(zip(kinds, rates, strict=True))]
            for stage, (kinds, rates) in enumerate(
                zip(map(block_kinds, depths, plan), drop_path_rates(drop_path_rate, depths), strict=True)
            )
        ]
        stem = preact_stem if base == "preact" else post_activation_stem
        norm = BatchNormAct2d(channels[-1]) if base == "preact" else nn.Identity()
        super().__init__(stem(in_chans, width, small_images), stages, norm, channels, **settings)
        self.depths, self.plan, self.base = tuple(depths), tuple(plan), base

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def no_weight_decay(self) -> set[str]:
        """The tables of relative position, as timm does for Swin."""
        return {name for name, _ in self.named_parameters() if name.endswith("relative_position_bias")}


def _check(depths: Sequence[int], plan: Sequence[int], base: str, bottleneck: bool, heads: Sequence[int]) -> None:
    if base not in BASES:
        raise unknown("base of AlterNet", base, BASES)
    if base == "resnext" and not bottleneck:
        raise VitlabError("ResNeXt has bottlenecks only; use alternet50 or alternet101 with base='resnext'")
    if len(plan) != len(depths) or len(heads) < len(depths):
        raise VitlabError(
            f"invalid plan={tuple(plan)} or heads={tuple(heads)}; expected {len(depths)} numbers, one for each stage"
        )
    if any(not 0 <= attentions <= depth // 2 for depth, attentions in zip(depths, plan, strict=True)):
        raise VitlabError(
            f"invalid plan={tuple(plan)} for stages of {tuple(depths)} blocks; expected at most "
            f"every second block as an MSA: {tuple(depth // 2 for depth in depths)}"
        )


def post_activation_stem(in_chans: int, width: int, small_images: bool) -> nn.Sequential:
    """Convolution, norm, activation, and for large images a max pool."""
    stem = nn.Sequential()
    stem.add_module("conv", first_convolution(in_chans, width, small_images))
    stem.add_module("norm", nn.BatchNorm2d(width))
    stem.add_module("act", nn.ReLU(inplace=True))
    if not small_images:
        stem.add_module("pool", nn.MaxPool2d(3, stride=2, padding=1))
    return stem


def post_activation_block(
    in_channels: int, out_channels: int, stage: int, index: int, bottleneck: bool, drop_path: float, grouped: bool
) -> nn.Module:
    """Returns the ResNet or ResNeXt block of that index; the first of a stage halves the map after stage 0."""
    kind = Bottleneck if bottleneck else BasicBlock
    before = in_channels if index == 0 else out_channels
    stride = 2 if index == 0 and stage > 0 else 1
    projects = stride > 1 or before != out_channels
    return kind(
        before,
        out_channels // kind.expansion,
        stride=stride,
        downsample=downsample_conv(before, out_channels, 1, stride=stride) if projects else None,
        cardinality=32 if grouped else 1,
        base_width=4 if grouped else 64,
        drop_path=DropPath(drop_path) if drop_path > 0 else None,
    )


default_cfgs = generate_default_cfgs({name: image_settings("_cifar" in name) for name in PAPER})


def _build(name: str, pretrained: bool, defaults: dict[str, Any], settings: dict[str, Any]) -> AlterNet:
    """Returns the network of that name; `settings` of the caller replace its defaults."""
    settings = {"small_images": "_cifar" in name, **defaults, **settings}
    return build_model_with_cfg(AlterNet, name, pretrained, feature_cfg={"flatten_sequential": True}, **settings)


@register_model
def alternet18(pretrained: bool = False, **settings: Any) -> AlterNet:
    """Alter-ResNet-18 for ImageNet."""
    defaults = {"depths": (2, 2, 2, 2), "plan": (0, 1, 1, 1), "bottleneck": False}
    return _build("alternet18", pretrained, defaults, settings)


@register_model
def alternet34(pretrained: bool = False, **settings: Any) -> AlterNet:
    """Alter-ResNet-34 for ImageNet."""
    defaults = {"depths": (3, 4, 6, 4), "plan": (0, 1, 3, 2), "bottleneck": False}
    return _build("alternet34", pretrained, defaults, settings)


@register_model
def alternet50(pretrained: bool = False, **settings: Any) -> AlterNet:
    """Alter-ResNet-50 for ImageNet, 6 MSAs (HDVW Fig. D.5)."""
    return _build("alternet50", pretrained, {"depths": (3, 4, 6, 4), "plan": (0, 1, 3, 2)}, settings)


@register_model
def alternet101(pretrained: bool = False, **settings: Any) -> AlterNet:
    """Alter-ResNet-101 for ImageNet."""
    return _build("alternet101", pretrained, {"depths": (3, 4, 23, 4), "plan": (0, 1, 3, 2)}, settings)


@register_model
def alternet18_cifar(pretrained: bool = False, **settings: Any) -> AlterNet:
    """Alter-ResNet-18 for 32×32 images."""
    defaults = {"depths": (2, 2, 2, 2), "plan": (0, 1, 1, 1), "bottleneck": False}
    return _build("alternet18_cifar", pretrained, defaults, settings)


@register_model
def alternet34_cifar(pretrained: bool = False, **settings: Any) -> AlterNet:
    """Alter-ResNet-34 for 32×32 images; the plan is that of 50, our choice."""
    defaults = {"depths": (3, 4, 6, 4), "plan": (0, 1, 1, 2), "bottleneck": False}
    return _build("alternet34_cifar", pretrained, defaults, settings)


@register_model
def alternet50_cifar(pretrained: bool = False, **settings: Any) -> AlterNet:
    """Alter-ResNet-50 for 32×32 images (HDVW Fig. 11)."""
    return _build("alternet50_cifar", pretrained, {"depths": (3, 4, 6, 4), "plan": (0, 1, 1, 2)}, settings)


@register_model
def alternet50_cifar_released(pretrained: bool = False, **settings: Any) -> AlterNet:
    """Alter-ResNet-50 for 32×32 images with the plan of HDVW's code."""
    return _build("alternet50_cifar_released", pretrained, {"depths": (3, 4, 6, 4), "plan": (0, 1, 3, 2)}, settings)


@register_model
def alternet101_cifar(pretrained: bool = False, **settings: Any) -> AlterNet:
    """Alter-ResNet-101 for 32×32 images; the plan is that of 50, our choice."""
    return _build("alternet101_cifar", pretrained, {"depths": (3, 4, 23, 4), "plan": (0, 1, 1, 2)}, settings)
