"""LocalViT: the released feed-forward network is an `nn.Sequential`, whose squeeze-and-excitation has linear layers.

Source: the keys and shapes of ofsoundof/LocalViT. vitlab has the variants with a squeeze-and-excitation of 4 hidden
channels: `localvit_tiny_mlp4_act3_r192` and `localvit_small_mlp4_act3_r384`.
"""

from __future__ import annotations

from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.models.published.layout import Layout, Rule, Tensors, as_convolutions, rename

_LAYERS = {
    "0": "fc1",
    "1": "norm1",
    "3": "depthwise",
    "4": "norm2",
    r"6\.fc\.0": "excite.fc1",
    r"6\.fc\.2": "excite.fc2",
    "7": "fc2",
    "8": "norm3",
}

RULES: tuple[Rule, ...] = tuple((rf"\.conv\.conv\.{released}\.", f".mlp.{ours}.") for released, ours in _LAYERS.items())


def convert(tensors: Tensors) -> dict[str, Tensor]:
    """Released LocalViT -> `LocalVisionTransformer`."""
    if "blocks.0.conv.conv.6.fc.0.weight" not in tensors:
        raise VitlabError(
            "this LocalViT has no squeeze-and-excitation; expected localvit_tiny_mlp4_act3_r192 or "
            "localvit_small_mlp4_act3_r384, the supported variants"
        )
    return as_convolutions(rename(tensors, RULES), r"\.excite\.fc\d\.weight$")


LAYOUT = Layout("LocalViT", ("local_vit_",), "blocks.0.conv.conv.0.weight", convert)
