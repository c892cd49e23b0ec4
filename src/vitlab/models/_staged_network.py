"""Base class of residual networks with stages: the form of timm's models around the blocks.

Shape legend: B batch, C channels, h w grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from timm.layers import ClassifierHead
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.models._checkpointing import checkpoint_block, is_scripting

__all__ = ["StagedNetwork"]


class StagedNetwork(nn.Module):
    """Base class of residual networks: a stem, stages of blocks, a last norm, pooling and a linear classifier.

    Args:
        stem: the first layers; its child `conv` is the first convolution.
        stages: a list of blocks per stage; the first block of every stage except the first halves the map.
        norm: the norm after the last stage.
        channels: widths of the stem and of every stage.
        num_classes: number of classes; with 0 the model returns pooled features.
        global_pool: pooling of the classifier, as in timm.
        drop_rate: dropout before the classifier.
        img_size: the default size of `describe`; no weight depends on it.
    """

    def __init__(
        self,
        stem: nn.Sequential,
        stages: Sequence[Sequence[nn.Module]],
        norm: nn.Module,
        channels: Sequence[int],
        num_classes: int = 1000,
        global_pool: str = "avg",
        drop_rate: float = 0.0,
        img_size: int | tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.num_features = self.head_hidden_size = channels[-1]
        self.img_size = img_size
        self.stem = stem
        self.stages = nn.Sequential(*(nn.Sequential(*blocks) for blocks in stages))
        self.norm = norm
        self.grad_checkpointing = False
        self.head = ClassifierHead(self.num_features, num_classes, pool_type=global_pool, drop_rate=drop_rate)
        pooled = hasattr(stem, "pool")
        self.feature_info = [
            # the map of the stem, before its max pool
            {
                "num_chs": channels[0],
                "reduction": 2 if pooled else 1,
                "module": "stem.act" if hasattr(stem, "act") else "stem.conv",
            },
            *(
                {"num_chs": width, "reduction": (4 if pooled else 1) * 2**stage, "module": f"stages.{stage}"}
                for stage, width in enumerate(channels[1:])
            ),
        ]

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Parameter groups by depth, for layer-wise learning rates."""
        blocks = r"^stages\.(\d+)" if coarse else [(r"^stages\.(\d+)\.(\d+)", None), (r"^norm", (99999,))]
        return {"stem": r"^stem", "blocks": blocks}

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute each block in the backward pass."""
        self.grad_checkpointing = enable

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def get_classifier(self) -> nn.Module:
        """The last linear layer."""
        classifier: nn.Module = self.head.fc
        return classifier

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the classifier."""
        self.num_classes = num_classes
        self.head.reset(num_classes, pool_type=global_pool)

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> the last map (B, C, h, w), normalised."""
        x = self.stem(x)
        if self.grad_checkpointing and not is_scripting():
            for stage in self.stages:
                for block in stage.children():
                    x = checkpoint_block(block, x)
        else:
            x = self.stages(x)
        return self.norm(x)

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Returns the maps at the chosen entries of `feature_info` (stem, stages), and the last map, as in timm.

        The norm follows the last stage, so `norm` applies only to its map.
        """
        if output_fmt != "NCHW":
            raise VitlabError(f"invalid output_fmt={output_fmt!r}; expected 'NCHW'")
        take, last = feature_take_indices(len(self.feature_info), indices)
        maps: list[Tensor] = []
        end = self.feature_info[0]["module"].rpartition(".")[2]  # the layer of the stem before its max pool
        for name, layer in self.stem.named_children():
            x = layer(x)
            if name == end and 0 in take:
                maps.append(x)
        for index, stage in enumerate(self.stages, start=1):
            if stop_early and index > last:
                break
            for block in stage.children():
                x = checkpoint_block(block, x) if self.grad_checkpointing else block(x)
            if index in take:
                maps.append(self.norm(x) if norm and index == len(self.feature_info) - 1 else x)
        return maps if intermediates_only else (self.norm(x), maps)

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove the stages after the last chosen map."""
        take, last = feature_take_indices(len(self.feature_info), indices)
        self.stages = self.stages[:last]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return list(take)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The last map -> logits (B, classes), or pooled features (B, C)."""
        output: Tensor = self.head(x, pre_logits=pre_logits)
        return output

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> logits (B, classes)."""
        return self.forward_head(self.forward_features(x))
