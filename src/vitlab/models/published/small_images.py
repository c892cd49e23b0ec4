"""PiT and Swin for CIFAR in timm's layout of 2021: the downsampling of a stage belongs to the next stage today.

Source: the keys and shapes of the models released by xxxnell/how-do-vits-work. Its ViT for CIFAR has the current keys.
The classes of its own code, `models/{vit,pit,swin,mixer}.py`, have other keys and no published weights: refused.
"""

from __future__ import annotations

import re

from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.models.published.layout import Layout, Rule, Tensors, numbered, rename

_COMPUTED = re.compile(r"\.(attn_mask|relative_position_index)$")


def convert_pit(tensors: Tensors) -> dict[str, Tensor]:
    """Released PiT -> timm's `PoolingVisionTransformer`."""
    return rename(tensors, [(r"^transformers\.(\d+)\.pool\.", numbered("transformers.", 1, ".pool."))])


def convert_swin(tensors: Tensors) -> dict[str, Tensor]:
    """Released Swin -> timm's `SwinTransformer`, which computes masks and indices itself."""
    learned = {key: tensor for key, tensor in tensors.items() if not _COMPUTED.search(key)}
    rules: list[Rule] = [
        (r"^layers\.(\d+)\.downsample\.", numbered("layers.", 1, ".downsample.")),
        (r"^head\.(weight|bias)$", r"head.fc.\1"),
    ]
    return rename(learned, rules)


PIT = Layout("PiT", ("pit_",), "transformers.0.pool.conv.weight", convert_pit)
SWIN = Layout("Swin", ("swin_",), "layers.0.downsample.reduction.weight", convert_swin)


def _refused(family: str, mark: str, difference: str) -> Layout:
    """A layout that is identified and not converted."""

    def convert(tensors: Tensors) -> dict[str, Tensor]:
        raise VitlabError(
            f"these are weights of the class {family} of how-do-vits-work's own code, which are not converted "
            f"({difference}); expected weights in timm's layout, as those that its authors released"
        )

    return Layout(family, (), mark, convert)


#: The classes of HDVW's code: no weights of them were published.
OWN_CODE = (
    _refused(
        "ViT or Mixer", "embedding.0.patch_embedding.1.weight", "a linear layer embeds patches, with channels last"
    ),
    _refused("PiT", "embedding.0.patch_embedding.2.weight", "the class token has a position embedding, ours has none"),
    _refused("SwinTransformer", "layer1.0.patch_merge.weight", "convolutions without a norm merge patches"),
)
