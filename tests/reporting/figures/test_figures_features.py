"""Figures of features, lesions and gradients: the stream is shaded right, and findings say which way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cases import looks
from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, draw
from vitlab.reporting.figures.gradient_reach import ratio
from vitlab.reporting.residual_stream_plot import SHADES, effects, stream


def lines(figure: Figure, name: str) -> list:
    return [trace for trace in figure.plot.data if trace.name == name and "lines" in (trace.mode or "")]


def shaded(figure: Figure, colour: str, panel: str = "x") -> list[tuple[float, float]]:
    shapes = figure.plot.layout.shapes
    return [(s.x0, s.x1) for s in shapes if s.xref == panel and s.fillcolor == SHADES[colour]]


@pytest.mark.parametrize(("make", "value"), [(looks.fourier, "high"), (looks.variance, "variance")])
def test_the_stream_has_each_map_once_and_msas_are_grey(make, value: str) -> None:
    found = make("a", depth=3)
    drawn = draw(found.kind, [found])[0]
    (line,) = lines(drawn, "a")
    every = found.values[value]
    np.testing.assert_allclose(
        line.y, [every[0], *every[np.arange(9) % 3 != 0]]
    )  # inputs are outputs of the block before
    assert shaded(drawn, "MSA") == [(0, 1), (2, 3), (4, 5)]
    assert not shaded(drawn, "subsampling")
    assert line.text[1] == "blocks.0 mid"
    assert list(drawn.plot.layout.xaxis.tickvals) == [2, 4, 6]


def test_subsampling_between_blocks_is_blue() -> None:
    found = looks.variance("a", depth=2, grids=[(8, 8), (4, 4)])
    found.values["variance"][3:] += 1  # the map that enters the second block is another
    drawn = draw(found.kind, [found])[0]
    assert shaded(drawn, "subsampling") == [(2, 3)] and shaded(drawn, "MSA") == [(0, 1), (3, 4)]
    np.testing.assert_allclose(lines(drawn, "a")[0].y, found.values["variance"])


def test_convolutions_are_white_and_other_mixers_have_a_colour_of_their_own() -> None:
    axes = {"place": ("c in", "c out", "p in", "p mid", "p out"), "step": ("c Conv", "p Pooling", "p MLP")}
    values = {"variance": np.array([1.0, 2, 2, 3, 4]), "change": np.array([1.0, 1, 1]), "grid": np.full((5, 2), 8)}
    dims = {"variance": ("place",), "change": ("step",), "grid": ("place", "side")}
    found = Measurement("feature_variance", "a", values, dims, axes)
    assert stream(found, "variance").kinds == ("Conv", "Pooling", "MLP")
    drawn = draw(found.kind, [found])[0]
    assert shaded(drawn, "other mixing") == [(1, 2)] and not shaded(drawn, "MSA")


def test_a_step_without_change_is_drawn() -> None:
    found = looks.variance("a", depth=2, level=0.0)
    assert stream(found, "variance").kinds == ("MSA", "MLP", "MSA", "MLP")


def test_models_of_one_architecture_share_a_panel() -> None:
    same = draw("feature_variance", [looks.variance("a"), looks.variance("b", level=0.2)])[0]
    assert {line.xaxis for name in "ab" for line in lines(same, name)} == {"x"}
    apart = draw("feature_variance", [looks.variance("a"), looks.variance("b", depth=2)])[0]
    assert [line.xaxis for name in "ab" for line in lines(apart, name)] == ["x", "x2"]
    assert len(shaded(apart, "MSA", "x")) == 4 and len(shaded(apart, "MSA", "x2")) == 2


@pytest.mark.parametrize("make", [looks.fourier, looks.variance])
def test_effects_of_msas_and_mlps_are_stated_in_both_directions(make) -> None:
    down = draw(make().kind, [make("a", depth=4, level=0.5)])[0].finding
    assert "MSA lowers it in 4 of 4 steps (mean -0.5), MLP raises it in 4 of 4 steps (mean +0.25)" in down
    up = draw(make().kind, [make("a", depth=4, level=-0.5)])[0].finding
    assert "MSA raises it in 4 of 4 steps (mean +0.5), MLP lowers it in 4 of 4 steps (mean -0.25)" in up


def test_disagreeing_counts_and_means_are_both_stated() -> None:
    values = {"change": np.array([-1.0, 5.0, -1.0, np.nan])}
    axes = {"step": tuple(f"blocks.{i} MSA" for i in range(4))}
    found = Measurement("k", "a", values, {"change": ("step",)}, axes)
    assert effects(found) == "MSA raises it in 1 and lowers it in 2 of 3 steps (mean +1)"
    assert effects(found, brief=True) == "MSA +1 per step"


def test_variance_over_many_magnitudes_has_a_logarithmic_axis() -> None:
    small, large = looks.variance("a"), looks.variance("b")
    assert draw(small.kind, [small])[0].plot.layout.yaxis.type != "log"
    large = replace(large, values={**large.values, "variance": 1000 * large.values["variance"]})
    assert draw(small.kind, [small, large])[0].plot.layout.yaxis.type == "log"


def test_a_spectrum_for_the_input_and_after_each_block() -> None:
    found = looks.fourier("a", depth=3)
    found.values["amplitude"][-1, -1] = found.values["frequency"][-1, -1] = np.nan  # a smaller grid
    curves = [trace for trace in draw(found.kind, [found])[1].plot.data if trace.mode == "lines"]
    assert len(curves) == 4
    for curve, place in zip(curves, (0, 2, 5, 8), strict=True):
        finite = np.isfinite(found.values["amplitude"][place])
        np.testing.assert_allclose(curve.y, found.values["amplitude"][place][finite], atol=1e-3)
        np.testing.assert_allclose(curve.x, found.values["frequency"][place][finite])
    assert len({curve.line.color for curve in curves}) == 4


def test_the_frequency_at_1_is_defined() -> None:
    found = looks.fourier("a")
    assert "at 0.75π, the highest here, which the paper calls 1.0π)" in draw(found.kind, [found])[0].finding
    found.values["frequency"][:] = np.linspace(0, 1, 4)
    assert "at 1.0π)" in draw(found.kind, [found])[0].finding


def test_the_spectrum_marks_the_last_block() -> None:
    low, high = looks.fourier("low", level=0.9), looks.fourier("high", level=0.1)
    assert draw(low.kind, [high, low])[1].finding.endswith("lower); noise not known")
    assert draw(low.kind, [low, high])[1].finding.endswith("higher); noise not known")
    sure = [
        replace(
            m,
            values={**m.values, "high_error": np.full(m.values["high"].shape, 9.0)},
            dims={**m.dims, "high_error": m.dims["high"]},
            errors={"high": "high_error"},
        )
        for m in (low, high)
    ]
    assert draw(low.kind, sure)[1].finding.endswith("higher, within the noise)")


def test_cka_is_a_square_from_0_to_1() -> None:
    found = looks.cka("a", depth=5)
    (drawn,) = draw(found.kind, [found])
    (square,) = drawn.plot.data
    np.testing.assert_allclose(square.z, found.values["cka"], atol=1e-4)
    assert (square.zmin, square.zmax) == (0, 1) and list(square.x) == [1, 2, 3, 4, 5]
    halves = [found.values["cka"][i, j] for i in range(5) for j in range(5) if (i < 2) != (j < 2)]
    assert f"{np.mean(halves):.3f}" in drawn.finding


def test_cka_is_compared_both_ways_and_large_ones_are_averaged_down() -> None:
    low, high = looks.cka("low", level=0.3), looks.cka("high", level=0.9)
    assert draw(low.kind, [high, low])[0].finding.endswith("lower); noise not known")
    assert draw(low.kind, [low, high])[0].finding.endswith("higher); noise not known")
    assert np.shape(draw(low.kind, [looks.cka(depth=200)])[0].plot.data[0].z) == (64, 64)


def test_lesions_are_points_with_95_percent_bars_by_kind() -> None:
    found = looks.lesion("a", depth=3)
    bars = {trace.name: trace for trace in draw(found.kind, [found])[0].plot.data}
    assert set(bars) == {"a, MSA", "a, MLP", "MSA", "MLP"}  # the last two are the legend
    np.testing.assert_allclose(bars["a, MSA"].y, 100 * found.values["change"][::2])
    np.testing.assert_allclose(bars["a, MLP"].y, 100 * found.values["change"][1::2])
    np.testing.assert_allclose(bars["a, MSA"].error_y.array, 1.96 * 100 * np.full(3, 0.02))
    assert list(bars["a, MLP"].x) == [1, 3, 5]
    msa, mlp = bars["a, MSA"].marker, bars["a, MLP"].marker  # a colour is a model, a pattern a kind
    assert msa.color == mlp.color and msa.pattern.shape != mlp.pattern.shape
    assert list(bars["a, MLP"].customdata) == ["blocks.0 MLP", "blocks.1 MLP", "blocks.2 MLP"]


def test_lesions_name_the_unit_with_the_largest_effect() -> None:
    found = looks.lesion("a", level=0.5)
    accuracy, loss = draw(found.kind, [found])
    start = "The unit whose removal costs most: MSA of block 1 in a "
    assert accuracy.finding == f"{start}(-50.0 ± 3.9 points, largest of 8)"
    assert loss.finding.startswith(f"{start}(+1.00 ± 0.20 nats, largest of 8")
    small = draw(found.kind, [looks.lesion("a", level=0.01)])[0].finding
    assert "-1.0 ± 3.9 points, within the noise, largest of 8" in small
    assert draw(found.kind, [looks.lesion("a", level=-0.5)])[0].finding.endswith(": none in a")
    found.values["change"][:] = np.nan
    assert draw(found.kind, [found])[0].finding.endswith(": not known in a")


def test_lesions_count_the_units_that_cost_as_much() -> None:
    """−50 ± 3.9 points: −48 is inside the interval, −44 is not; without errors only equal changes count."""
    found = looks.lesion("a", level=0.5)
    found.values["change"][1:3] = -0.48, -0.44
    assert draw(found.kind, [found])[0].finding.endswith("largest of 8, 1 other inside its interval)")
    found.values["change"][1:4] = -0.48, -0.5, -0.5
    found.values[found.errors["change"]][:] = np.nan
    assert draw(found.kind, [found])[0].finding.endswith("largest of 8, 2 others with the same change)")


def test_lesions_name_only_kinds_that_the_models_have() -> None:
    found = looks.lesion("a")
    assert draw(found.kind, [found])[0].headline.row.what.endswith("without one unit (MSA or MLP)")
    units = tuple(str(unit).replace("MLP", "Conv") for unit in found.axes["unit"])
    other = replace(found, axes={**found.axes, "unit": units})
    assert draw(found.kind, [other])[0].headline.row.what.endswith("without one unit (MSA or Conv)")


def test_stages_are_separated() -> None:
    found = looks.lesion("a", depth=4)  # stages of two blocks, four units
    (line,) = draw(found.kind, [found])[0].plot.layout.shapes
    assert line.x0 == line.x1 == 3.5


def test_gradients_of_a_block_add_in_squares() -> None:
    found = looks.reach("a", depth=3)
    expected = np.full((3, 3), np.nan)
    for seam in range(3):
        for block in range(3):
            part, total = (found.values[name][seam, block] for name in ("through", "total"))
            kept = np.isfinite(total)
            expected[seam, block] = 100 * np.linalg.norm(part[kept]) / np.linalg.norm(total[kept])
    np.testing.assert_allclose(ratio(found, "through"), expected)
    drawn = draw(found.kind, [found])[0]
    for seam, name in enumerate(("Front", "Mid", "End")):
        through, changed = (
            lines(drawn, f"a: {part}, {name}")[0] for part in ("passes a term", "changes with the term")
        )
        np.testing.assert_allclose(through.y, expected[seam])
        np.testing.assert_allclose(changed.y, np.full(3, 50))
    assert "25.0 % at Front, 40.0 % at Mid, 50.0 % at End in a" in drawn.finding


def test_the_weight_with_the_largest_gradient_is_named() -> None:
    found = looks.reach("a", depth=3)
    found.values["through"][1, 2, 1] = 0.9 * found.values["total"][1, 2, 1]
    drawn = draw(found.kind, [found])[1]
    assert drawn.finding.startswith("Largest part: fc2.weight of block 3, 90.0 %") and "at Mid of a" in drawn.finding
    middle = np.array(drawn.plot.data[1].z, dtype=float)
    assert middle[1, 2] == pytest.approx(90) and np.isnan(middle[1, 0])


@pytest.mark.parametrize("make", [looks.lesion, looks.fourier, looks.overfocus, looks.reach])
def test_no_axis_is_repeated(make) -> None:
    for figure in draw(make().kind, [make(name) for name in "abc"]):
        axes = {axis.plotly_name.replace("axis", ""): axis.matches for axis in figure.plot.select_yaxes()}
        assert all(axes.get(of) is None for of in axes.values() if of) and axes.get("y") is None
    scales = [axis.matches for axis in draw("lesion", [looks.lesion(name) for name in "abc"])[0].plot.select_yaxes()]
    assert scales == [None, "y", "y"]
