"""Settings of timm's models that cannot be meant are refused; what timm itself passes to its classes is accepted."""

from __future__ import annotations

import inspect
import random
from typing import Any

import pytest
import timm
import torch

import vitlab
from vitlab.models._timm_settings import accepts, check_timm_settings, constructor_settings

VIT = "vit_tiny_patch16_224"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("qkv_bias='no'", "expected True or False"),
        ("class_token=3", "expected True or False"),
        ("fc_norm=7", "expected True or False, or None"),
        ("init_values=1e400", "expected finite numbers"),
        ("init_values='x'", "expected a number, or None"),
        ("reg_tokens='4'", "expected an integer"),
        ("reg_tokens=True", "expected an integer"),
        ("qkv_bias=None", "expected True or False"),
        ("global_pool=7", "expected text in quotes"),
    ],
)
def test_invalid_values_raise(setting: str, expected: str) -> None:
    with pytest.raises(vitlab.VitlabError, match=rf"^timm/{VIT}\(.*\): {expected}$"):
        vitlab.load(f"timm/{VIT}({setting})")


@pytest.mark.parametrize(
    "settings",
    [
        {"init_values": 1, "qkv_bias": False, "fc_norm": None, "class_token": True, "reg_tokens": 4},
        {"norm_layer": "layernorm", "act_layer": "relu", "dynamic_img_size": True},
        {"features_only": True, "out_indices": (1, 2)},
    ],
)
def test_values_of_timm_are_accepted(settings: dict[str, Any]) -> None:
    check_timm_settings(VIT, settings)
    with torch.device("meta"):
        timm.create_model(VIT, **settings)


def test_a_default_that_contradicts_its_annotation_is_accepted() -> None:
    """RDNet declares lists of integers whose defaults are lists of text, and of None."""
    check_timm_settings("rdnet_tiny", {"block_type": ["Block", "BlockESE"], "is_downsample_block": (None, True)})
    with pytest.raises(vitlab.VitlabError, match="expected True or False, or None, or a list of these"):
        check_timm_settings("rdnet_tiny", {"is_downsample_block": ("x", True)})


def test_what_timm_passes_to_its_classes_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    names = random.Random(0).sample(
        [name for name in timm.list_models() if name not in timm.list_models("*cifar*")], 12
    )
    checked = 0
    for name in names:
        with torch.device("meta"):
            kind = type(timm.create_model(name))
            passed: dict[str, Any] = {}
            init, signature = kind.__init__, inspect.signature(kind.__init__)

            def record(self: Any, *given: Any, **named: Any) -> None:
                arguments = signature.bind(self, *given, **named).arguments  # noqa: B023
                passed.update({**arguments, **arguments.get("kwargs", {})})  # noqa: B023
                init(self, *given, **named)  # noqa: B023

            with monkeypatch.context() as patch:
                patch.setattr(kind, "__init__", record)
                timm.create_model(name)
        declared = constructor_settings(kind)
        for key in passed.keys() & declared.keys():
            checked += 1
            assert passed[key] is None or accepts(passed[key], *declared[key]), f"{name}({key}={passed[key]!r})"
    assert checked > 20
