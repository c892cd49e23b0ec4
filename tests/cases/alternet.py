"""Tiny AlterNets and pre-activation ResNets: two stages, non-square images, maps with and without padded windows."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from cases import Case, timm_model


def own_model(name: str, **settings: object) -> Callable[[], nn.Module]:
    """A builder of one of our models; importing the file registers it with timm."""

    def build() -> nn.Module:
        import vitlab.models.alternet
        import vitlab.models.preact_resnet  # noqa: F401

        return timm_model(name, **settings)()

    return build


TINY = {"depths": (2, 3), "width": 32}
ALTERNET = dict(TINY, plan=(1, 1), heads=(2, 3), head_dim=16)

CASES = [
    Case("alternet", own_model("alternet50_cifar", **ALTERNET), size=(8, 16)),
    Case("alternet", own_model("alternet18_cifar", **ALTERNET, base="resnet"), size=(12, 10)),  # windows are padded
    Case("alternet", own_model("alternet50", **ALTERNET, base="resnext"), size=(32, 56)),
    Case("preact_resnet", own_model("preact_resnet18_cifar", **TINY), size=(16, 24)),
    Case("preact_resnet", own_model("preact_resnet50", **TINY), size=(32, 48)),
]
