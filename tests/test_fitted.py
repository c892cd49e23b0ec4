"""`vitlab.parts` lists fitted parts, also on copies and wrapped models; a repeated part is a warning."""

from __future__ import annotations

import copy
import warnings

import pytest
import timm
import torch
from torch import nn

import vitlab
from cases import VIT
from vitlab.modules.context_broadcast import ContextBroadcast, ScaledContextBroadcast


def plain_model() -> nn.Module:
    return timm.create_model("deit_tiny_patch16_224", num_classes=7, **VIT).eval()


def test_parts_are_listed_with_place_and_settings() -> None:
    model = plain_model()
    assert vitlab.parts(model) == ()
    vitlab.retrofit(model, "LocalAttention(kernel=3)", blocks=[2])
    vitlab.retrofit(model, "TokenAwarePooling(branches=2)", blocks=[0])
    vitlab.retrofit(model, ScaledContextBroadcast, at="mlp.mid", blocks=[1])
    vitlab.retrofit(model, ContextBroadcast(), blocks=[0])
    for other in (model, copy.deepcopy(model), torch.compile(model, backend="eager"), nn.DataParallel(model)):
        found = vitlab.parts(other)
        assert [(part.name, part.seam, part.block, part.settings) for part in found] == [
            ("TokenAwarePooling", "attn.in", "blocks.0", {"branches": 2}),
            ("ContextBroadcast", "mlp.out", "blocks.0", None),
            ("ScaledContextBroadcast", "mlp.mid", "blocks.1", {}),
            ("LocalAttention", "attn", "blocks.2", {"kernel": 3}),
        ]
        for part in found:
            assert type(model.get_submodule(part.path)) is part.kind and part.kind.__name__ == part.name
    assert vitlab.parts(vitlab.restore(model)) == ()


@pytest.mark.parametrize(
    "part", ["ContextBroadcast", "TokenAwarePooling(branches=2)", "ContextBroadcast(tokens=(0, 3))"]
)
def test_the_same_part_twice_at_one_place_warns_and_is_fitted(part: str) -> None:
    model = vitlab.retrofit(plain_model(), part, blocks=[0, 1])
    with pytest.warns(UserWarning, match=r"same settings is already at '.*' of blocks.1$"):
        vitlab.retrofit(model, part, blocks=[1, 2])
    assert [each.block for each in vitlab.parts(model)] == ["blocks.0", "blocks.1", "blocks.1", "blocks.2"]


def test_another_place_or_setting_does_not_warn() -> None:
    model = vitlab.retrofit(plain_model(), "ContextBroadcast", blocks=[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vitlab.retrofit(model, "ContextBroadcast", blocks=[1])
        vitlab.retrofit(model, "ContextBroadcast", at="attn.out", blocks=[0])
        vitlab.retrofit(model, "ContextBroadcast(tokens=(0, 3))", blocks=[0])
        vitlab.retrofit(model, "ScaledContextBroadcast", blocks=[0])
        vitlab.retrofit(model, "ScaledContextBroadcast(init=0.5)", blocks=[0])
