"""The settings of the architectures of this package, and the memory of a model, both checked before it is built."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from torch import nn

from vitlab.core.bounds import Length, Range, Rate
from vitlab.core.errors import VitlabError
from vitlab.core.machine_memory import check_memory

Pixels = Annotated[int, Range(1, 4096)]
Count = Annotated[int, Range(1, 100_000)]
Number = Annotated[int, Range(0, 100_000)]
Blocks = Annotated[int, Range(0, 10**9)]
Ratio = Annotated[float, Range(0, 1000, open_low=True)]
Counts = Count | Annotated[Sequence[Count], Length(1, 100)]
Numbers = Annotated[Sequence[Number], Length(1, 100)]
Ratios = Ratio | Annotated[Sequence[Ratio], Length(1, 100)]


def architecture(
    *,
    img_size: Pixels | tuple[Pixels, Pixels] | None = None,
    in_chans: Annotated[int, Range(1, 1024)] = 3,
    num_classes: Annotated[int, Range(0, 10**6)] = 1000,
    global_pool: str | None = None,
    patch_size: Pixels | tuple[Pixels, Pixels] = 16,
    embed_dim: Counts = 192,
    embed_dims: Counts = 192,
    depth: Blocks | Annotated[Sequence[Blocks], Length(1, 100)] = 12,
    depths: Annotated[Sequence[Blocks], Length(1, 100)] = (12,),
    num_heads: Counts = 3,
    mlp_ratio: Ratios = 4.0,
    mlp_ratios: Ratios = 4.0,
    drop_rate: Rate = 0.0,
    pos_drop_rate: Rate = 0.0,
    proj_drop_rate: Rate = 0.0,
    attn_drop_rate: Rate = 0.0,
    drop_path_rate: Rate = 0.0,
    plan: Numbers = (0, 1, 1, 2),
    base: Literal["preact", "resnet", "resnext"] = "preact",
    bottleneck: bool = True,
    width: Count = 64,
    heads: Counts = (3, 6, 12, 24),
    head_dim: Count | None = 64,
    small_images: bool = False,
    masked_blocks: Number = 0,
    conv_mlp: bool = True,
    pretrained: bool = False,
    **others: Any,
) -> None:
    """The settings that architectures of this package take; the constructor of each checks those that are not named.

    Args:
        img_size: height and width of the images.
        in_chans: number of channels of the images.
        num_classes: number of outputs; 0 for features.
        global_pool: how the tokens are pooled.
        patch_size: side of a patch in pixels.
        embed_dim, embed_dims: channels, one number or one for each stage.
        depth, depths: number of blocks, or of the blocks of each stage.
        num_heads: attention heads, one number or one for each stage.
        mlp_ratio, mlp_ratios: hidden channels of the MLP as a multiple of the channels.
        drop_rate, pos_drop_rate, proj_drop_rate, attn_drop_rate: rates of dropout.
        drop_path_rate: rate of stochastic depth.
        plan: attention blocks of each stage (AlterNet).
        base: the network that attention blocks are added to (AlterNet).
        bottleneck: whether convolution blocks are bottlenecks (AlterNet, ResNet).
        width: channels of the stem (AlterNet, ResNet).
        heads, head_dim: attention heads of each stage, and channels of each head (AlterNet).
        small_images: the stem for images of 32×32 (AlterNet, ResNet).
        masked_blocks: number of blocks that scale attention by position (RVT).
        conv_mlp: whether the MLP has a depthwise convolution (RVT).
        pretrained: whether to load published weights.
    """


#: Settings that mean the same in all models of timm.
COMMON = (
    *("img_size", "in_chans", "num_classes", "patch_size", "num_heads", "mlp_ratio", "pretrained"),
    *("drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate"),
)

#: Settings that multiply the number of modules. Building takes time for each module, so larger values are extrapolated.
_DEPTHS = re.compile(r"(^|_)(depths?|layers?|blocks?|stages?)(?!_(size|scale|rate|ratio|dim))(_|$)")
_DEEP, _LARGE = 100, 4096  # smaller values are built without an estimate
_MOST_BLOCKS = 1_000
_SECONDS = 0.006  # to build a block of a small model


def check_size(what: str, settings: Mapping[str, Any], build: Callable[..., nn.Module]) -> None:
    """Raise an error if the weights of a model do not fit into the memory of this machine.

    The model is built on the meta device, which takes no memory. It is built with one and with two blocks where the
    settings ask for many, and its size is extrapolated. Nothing is built if no setting is large.

    Args:
        what: the model, for the error.
        settings: of the model.
        build: builds the model with random weights from settings.
    """
    deep = {key: value for key, value in settings.items() if _DEPTHS.search(key) and _largest(value) > _DEEP}
    if torch.get_default_device().type == "meta" or not (
        deep or any(_largest(each) > _LARGE for each in settings.values())
    ):
        return
    try:
        once, twice = (_weight_bytes(build, {**settings, **_shrunk(deep, depth)}) for depth in (1, 2))
    except Exception:  # building the model states the reason
        once = twice = 0
    blocks = min(max(map(_largest, deep.values()), default=1), 10**12)
    large = sorted(
        (key for key in settings if _largest(settings[key]) > _DEEP), key=lambda key: -_largest(settings[key])
    )
    advice = f"use smaller settings, such as {' or '.join(large[:2])}"
    check_memory(what, once + (blocks - 1) * (twice - once), advice=advice)
    blocks = min(sum(map(_total, deep.values())), 10**12)
    if blocks > _MOST_BLOCKS:
        seconds = blocks * _SECONDS
        time = f"{seconds:,.0f} seconds" if seconds < 120 else f"{seconds / 60:,.0f} minutes"
        raise VitlabError(
            f"{what} has {blocks:,} blocks, which take about {time} to build; use {_MOST_BLOCKS:,} or fewer"
        )


def _weight_bytes(build: Callable[..., nn.Module], settings: Mapping[str, Any]) -> int:
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        model = build(**settings)
    return sum(each.numel() * each.element_size() for each in (*model.parameters(), *model.buffers()))


def _largest(value: Any) -> int:
    """The largest integer in a setting; 0 without integers."""
    if isinstance(value, list | tuple):
        return max(map(_largest, value), default=0)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _total(value: Any) -> int:
    """The sum of the integers in a setting."""
    return sum(map(_total, value)) if isinstance(value, list | tuple) else max(_largest(value), 0)


def _shrunk(deep: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """The settings with `depth` in place of every large number of blocks."""

    def replaced(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(map(replaced, value))
        return depth if _largest(value) > _DEEP else value

    return {key: replaced(value) for key, value in deep.items()}
