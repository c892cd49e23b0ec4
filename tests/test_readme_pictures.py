"""The pictures of the README: attention of the class token, from the stored bytes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from vitlab.core.measurement import Measurement

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def pictures() -> Any:
    spec = importlib.util.spec_from_file_location("readme_pictures", ROOT / "docs/generator/readme_pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def view(subject: str) -> Measurement:
    """Two heads of a 2 × 3 grid: head 1 attends to patch 4 with 0.6, head 2 to all with 0.1."""
    maps = np.zeros((1, 2, 3, 6), np.uint8)
    maps[0, 0, 0, 4], maps[0, 1, 0] = 255, 255
    peaks = np.zeros((1, 2, 3), np.float32)
    peaks[0, :, 0] = 0.6, 0.1
    values = {"maps of b": maps, "peak of b": peaks, "grid": np.array([[2, 3]])}
    values |= {"pictures": np.zeros((1, 4, 4, 3), np.uint8)}
    dims = {name: tuple(f"{name}{i}" for i in range(np.ndim(value))) for name, value in values.items()}
    return Measurement("attention_view", subject, values, dims, {"layer": ("b",)})


def test_the_mean_over_heads_of_the_class_token(pictures: Any) -> None:
    expected = np.full((1, 2, 3), 0.05)
    expected[0, 1, 1] = 0.35
    np.testing.assert_allclose(pictures.class_attention(view("a"), "b"), expected, rtol=1e-6)


def test_the_picture_has_a_column_for_each_model(pictures: Any) -> None:
    root = ElementTree.fromstring(pictures.attention_picture([view("plain <b>"), view("CB")]))
    name = "{http://www.w3.org/2000/svg}"
    assert [text.text for text in root.iter(f"{name}text")] == ["image", "plain <b>", "CB"]
    assert len(list(root.iter(f"{name}image"))) == 3
