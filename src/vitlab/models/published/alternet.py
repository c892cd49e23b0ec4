"""AlterNet and ResNets: 1×1 convolutions of attention are packed into linear layers.

Source: the keys and shapes of xxxnell/how-do-vits-work.
"""

from __future__ import annotations

from torch import Tensor

from vitlab.models.published.layout import Layout, Rule, Tensors, as_matrices, numbered, pack, rename

RULES: tuple[Rule, ...] = (
    (r"^layer0\.(layer0\.)?0\.", "stem.conv."),
    (r"^layer(\d+)\.", numbered("stages.", -1, ".")),
    (r"^classifier\.\d+\.bn\.", "norm."),
    (r"^classifier\.\d+\.dense\.", "head.fc."),
    (r"^(stages\.\d+\.\d+)\.bn\.", r"\1.norm1."),
    (r"^(stages\.\d+\.\d+)\.conv\.", r"\1.conv1."),
    (r"\.conv([23])\.0\.", r".norm\1."),
    (r"\.conv([23])\.2\.", r".conv\1."),
    (r"\.shortcut\.0\.", ".downsample.conv."),
    (r"\.attn\.attn\.to_out\.0\.", ".attn.proj."),
    (r"\.attn\.attn\.", ".attn."),
    (r"\.attn\.pos_embedding$", ".attn.relative_position_bias"),
)


def convert(tensors: Tensors) -> dict[str, Tensor]:
    """Released AlterNet or pre-activation ResNet -> `AlterNet`, `PreActResNet`."""
    packed = pack(rename(tensors, RULES), "to_q", "to_kv", "qkv")
    return as_matrices(packed, r"\.attn\.(qkv|proj)\.weight$")


LAYOUT = Layout(
    "AlterNet and pre-activation ResNet",
    ("alternet", "preact_resnet"),
    "classifier.0.bn.weight",
    convert,
    ({}, {"plan": (0, 1, 3, 2)}, {"window_size": 7}, {"plan": (0, 1, 3, 2), "window_size": 7}),
)

#: Post-activation ResNet, an AlterNet without MSAs.
RESNET_RULES: tuple[Rule, ...] = (
    (r"^layer0\.0\.", "stem.conv."),
    (r"^layer0\.1\.", "stem.norm."),
    (r"^layer(\d+)\.", numbered("stages.", -1, ".")),
    (r"^classifier\.0\.dense\.", "head.fc."),
    (r"\.conv([123])\.0\.", r".conv\1."),
    (r"\.conv([123])\.1\.", r".bn\1."),
    (r"\.shortcut\.", ".downsample."),
)

RESNET = Layout(
    "ResNet",
    ("alternet",),
    "layer1.0.conv1.0.weight",
    lambda tensors: rename(tensors, RESNET_RULES),
    ({"depths": (3, 4, 6, 3), "plan": (0, 0, 0, 0), "base": "resnet"},),
)
