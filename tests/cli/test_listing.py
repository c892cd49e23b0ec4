"""What a stored measurement says in short: numbers, small tables with their axes, and how much of a whole it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vitlab.cli import listing
from vitlab.core.measurement import Measurement


def stored(folder: Path, **about: object) -> Path:
    values = {
        "clean_accuracy": np.array(0.75),
        "mce": np.array(np.nan),
        "accuracy": np.array([[0.5, 0.25], [np.nan, 0.0]]),
        "large": np.zeros((2, 2, 26)),
    }
    dims = {"clean_accuracy": (), "mce": (), "accuracy": ("attack", "epsilon"), "large": ("attack", "epsilon", "x")}
    axes = {"attack": ("fgsm", "pgd"), "epsilon": (1.0, 2.0), "x": tuple(range(26))}
    found = Measurement("adversarial", "a", values, dims, axes, {}, about)
    found.save(folder / "adversarial")
    return folder / "adversarial.json"


def test_small_arrays_come_with_their_axes(tmp_path: Path) -> None:
    row = listing.measured(stored(tmp_path, images=64, partial=True, device="cpu"))
    assert json.loads(json.dumps(row, allow_nan=False)) == {
        "path": str(tmp_path / "adversarial.json"),
        "kind": "adversarial",
        "subject": "a",
        "images": 64,
        "partial": True,
        "values": {"clean_accuracy": 0.75, "mce": None},
        "arrays": {
            "accuracy": {
                "axes": {"attack": ["fgsm", "pgd"], "epsilon": [1.0, 2.0]},
                "values": [[0.5, 0.25], [None, 0.0]],
            }
        },
    }
    assert not {"images", "partial"} & set(listing.measured(stored(tmp_path)))


@pytest.mark.parametrize(
    ("about", "remark"),
    [
        ({}, ""),
        ({"images": 64}, ""),
        ({"images": 64, "partial": False, "official_images": 50_000}, ""),
        (
            {"images": 1064, "partial": True, "official_images": 50_000},
            "adversarial of a: on 1,064 images, not the full 50,000",
        ),
        (
            {"images": 50_000, "partial": True, "official_images": 50_000},
            "adversarial of a: on a part of the benchmark only",
        ),
        ({"images": 9, "partial": True}, "adversarial of a: on a part of the benchmark only"),
    ],
)
def test_a_part_is_called_a_part(about: dict[str, object], remark: str, tmp_path: Path) -> None:
    assert listing.shortfall(stored(tmp_path, **about)) == remark
