"""PVT: modules that are numbered by stage become children of the stages.

Source: the keys and shapes of whai362/PVT.
"""

from __future__ import annotations

from torch import Tensor

from vitlab.models.published.layout import Layout, Rule, Tensors, numbered, rename

RULES: tuple[Rule, ...] = (
    (r"^pos_embed(\d)$", numbered("stages.", -1, ".pos_embed")),
    (r"^patch_embed(\d)\.", numbered("stages.", -1, ".patch_embed.")),
    (r"^block(\d)\.", numbered("stages.", -1, ".blocks.")),
    (r"^cls_token$", "stages.3.cls_token"),
)


def convert(tensors: Tensors) -> dict[str, Tensor]:
    """Released PVT -> `PyramidVisionTransformer`."""
    return rename(tensors, RULES)


LAYOUT = Layout("PVT", ("pvt_",), "pos_embed1", convert)
