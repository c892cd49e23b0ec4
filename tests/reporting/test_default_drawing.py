"""Default drawings by axes: traces contain the numbers for any names of axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vitlab.core.measurement import Measurement
from vitlab.core.old_files import errors_by_name
from vitlab.reporting.default_drawing import LONGEST_SIDE, draw_by_axes


def found(subject: str, dims: dict[str, tuple[str, ...]], axes: Any = None, **values: Any) -> Measurement:
    arrays = {name: np.asarray(v) for name, v in values.items()}
    return Measurement("new", subject, arrays, dims, axes or {}, errors=errors_by_name(dims))


def test_numbers_are_bars_with_their_errors() -> None:
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(("x", "x_error", "y"), ())
    (figure,) = draw_by_axes([found("a", dims, x=1.0, x_error=0.5, y=2.0), found("b", {"y": ()}, y=5.0)])
    first, second = figure.plot.data
    assert first.type == "bar" and list(first.x) == ["x", "y"] and list(first.y) == [1.0, 2.0]
    assert first.error_y.array[0] == pytest.approx(0.98) and np.isnan(first.error_y.array[1])
    assert list(second.x) == ["y"] and second.error_y.array is None
    assert figure.finding == "x: 1"


@pytest.mark.parametrize(("axis", "kind"), [("layer", "scatter"), ("severity", "scatter"), ("colour", "bar")])
def test_ordered_axes_have_lines_and_others_bars(axis: str, kind: str) -> None:
    models = [found(name, {"x": (axis,)}, x=row) for name, row in (("a", [1.0, np.nan]), ("b", [3.0, 5.0]))]
    (figure,) = draw_by_axes(models)
    assert [trace.type for trace in figure.plot.data] == [kind, kind]
    assert list(figure.plot.data[0].y) == [1.0, None] and figure.plot.layout.xaxis.title.text == axis
    assert figure.finding == f"x by {axis}, mean: 1 for a; b +3"


def test_matrices_are_heat_maps_side_by_side_and_large_ones_are_averaged_down() -> None:
    small, large = np.arange(6.0).reshape(2, 3), np.arange(130.0 * 4).reshape(130, 4)
    for z in (small, large):
        (figure,) = draw_by_axes([found(name, {"z": ("row", "column")}, z=z) for name in "ab"])
        assert [trace.name for trace in figure.plot.data] == ["a", "b"]
        drawn = np.asarray(figure.plot.data[0].z, dtype=float)
        assert len(drawn) == min(len(z), LONGEST_SIDE)
        np.testing.assert_allclose(drawn[0], z[: 1 if len(z) < 130 else 3].mean(0))


def test_errors_text_and_gaps_have_no_figure() -> None:
    dims: dict[str, tuple[str, ...]] = {"x": ("layer",), "x_error": ("layer",), "name": ("layer",), "gap": ("layer",)}
    (figure,) = draw_by_axes([found("a", dims, x=[1.0], x_error=[0.1], name=["n"], gap=[np.nan])])
    assert figure.plot.data[0].error_y.array[0] == pytest.approx(0.196)


def test_labels_are_no_markup() -> None:
    (figure,) = draw_by_axes([found("<b>", {"x": ("colour",)}, {"colour": ("<a href='x'>", "b")}, x=[1.0, 2.0])])
    assert figure.plot.data[0].name == "&lt;b&gt;" and figure.plot.data[0].x[0] == "&lt;a href='x'&gt;"
