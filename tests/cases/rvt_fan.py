"""Tiny RVT and FAN models: two stages, masks in some blocks, non-square images."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from cases import Case, timm_model

RVT = {"img_size": (64, 48), "embed_dims": (12, 24), "depths": (2, 1), "num_heads": (2, 4), "mlp_ratio": 2}
# Averaged, because little of the patches reaches the class token of a redrawn model.
FAN = {"img_size": (64, 48), "embed_dim": 64, "depth": 2, "num_heads": 4, "global_pool": "avg"}
STEM = {"stem_depths": (1, 1), "stem_dims": (32, 64)}


def own_model(file: str, name: str, **settings: object) -> Callable[[], nn.Module]:
    """A builder of one of our models, registered with timm when it is called."""

    def build() -> nn.Module:
        import importlib

        importlib.import_module(f"vitlab.models.{file}")
        return timm_model(name, **settings)()

    return build


CASES = [
    Case("rvt", own_model("rvt", "rvt_tiny", **RVT), size=(64, 48)),
    Case("rvt_plus", own_model("rvt", "rvt_tiny_plus", masked_blocks=2, **RVT), size=(64, 48)),
    Case("fan_vit", own_model("fan", "fan_tiny_vit", **FAN), size=(64, 48)),
    Case("fan_hybrid", own_model("fan", "fan_tiny_hybrid", **FAN, **STEM), size=(64, 48)),
]
