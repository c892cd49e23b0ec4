"""Settings of a wrong type raise an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import vitlab
from cases import CASES
from vitlab.core.errors import VitlabError
from vitlab.core.settings import check_settings

BATCHES = [(torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.long))]


def _takes(
    model: Any,
    batches: Any,
    *,
    flag: bool = False,
    count: int = 1,
    share: float = 0.5,
    limit: int | None = None,
    names: str | list[str] = "all",
) -> None: ...


@pytest.mark.parametrize(
    "settings",
    [
        {"flag": True},
        {"count": 3},
        {"count": np.int64(3)},
        {"share": 1},
        {"share": np.float32(0.5)},
        {"limit": None},
        {"limit": 4},
        {"names": ["one"]},
        {"names": 3},  # not a plain type: left to the function
    ],
)
def test_right_types_pass(settings: dict[str, Any]) -> None:
    check_settings("it", _takes, settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"flag": "False"}, r"it: flag='False' is a str; expected True or False"),
        ({"flag": 1}, r"flag=1 is a int; expected True or False"),
        ({"flag": None}, "expected True or False"),
        ({"count": "3"}, "expected an integer"),
        ({"count": 2.0}, "expected an integer"),
        ({"count": True}, "expected an integer"),
        ({"count": None}, "expected an integer"),
        ({"share": "0.5"}, "expected a number"),
        ({"limit": "all"}, "expected an integer or None"),
        ({"flagg": True}, "did you mean 'flag'"),
    ],
)
def test_wrong_types_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(VitlabError, match=message):
        check_settings("it", _takes, settings)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("attention_distance", {"renormalise": "False"}),
        ("feature_fourier", {"nyquist": "no"}),
        ("attention_maps", {"minmax": "False"}),
        ("loss_landscape", {"vectors": "False"}),
        ("hessian_spectrum", {"training": "False"}),
        ("calibration", {"bins": "10"}),
    ],
)
def test_measure(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(VitlabError, match=rf"{name}: .* is a str; expected"):
        vitlab.measure(name, CASES[0].model(), BATCHES, **settings)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("adversarial", {"random": "False"}), ("frequency_noise", {"clamp": "False"}), ("occlusion", {"seed": "0"})],
)
def test_stress(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(VitlabError, match=rf"{name}: .* is a str; expected"):
        vitlab.stress(name, CASES[0].model(), BATCHES, **settings)
