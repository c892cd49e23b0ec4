"""Figures of attention: they hold the measurement's numbers, and say which way models differ."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import looks
from vitlab.core.measurement import Measurement
from vitlab.core.old_files import errors_by_name
from vitlab.reporting.drawing import Figure, draw
from vitlab.reporting.layer_plots import curves, deep_half_finding, error_by_layer
from vitlab.reporting.panels import rounded, short, shrunk
from vitlab.reporting.readings import reading


def lines(figure: Figure, name: str) -> list:
    """The traces of a model that carry a line."""
    return [trace for trace in figure.plot.data if trace.name == name and "lines" in (trace.mode or "")]


def dots(figure: Figure, name: str) -> list:
    return [trace for trace in figure.plot.data if trace.name == f"{name}, heads" and trace.mode == "markers"]


def with_value(measurement: Measurement, **values: np.ndarray) -> Measurement:
    dims = {name: ("layer", "head")[: np.ndim(value)] for name, value in values.items()}
    axes = {**measurement.dims, **dims}
    return replace(measurement, values={**measurement.values, **values}, dims=axes, errors=errors_by_name(axes))


@pytest.mark.parametrize(
    ("make", "figure", "value"),
    [
        (looks.entropy, 0, "mean"),
        (looks.entropy, 1, "normalised"),
        (looks.entropy, 2, "class_row"),
        (looks.distance, 1, "distance"),
        (looks.distance, 0, "attended"),
        (looks.stability, 1, "mean"),
        (looks.diversity, 0, "head_similarity"),
        (looks.diversity, 2, "row_similarity"),
        (looks.softmax, 2, "mean"),
    ],
)
def test_lines_are_means_over_heads(make, figure: int, value: str) -> None:
    found = [make("plain", depth=4), make("new", depth=6, heads=5, level=0.7)]
    drawn = draw(found[0].kind, found)[figure]
    for measurement in found:
        table = measurement.values[value]
        (line,) = lines(drawn, measurement.subject)
        assert list(line.x) == list(range(1, len(table) + 1))
        expected = [sum(row) / len(row) for row in table.tolist()] if table.ndim > 1 else table.tolist()
        np.testing.assert_allclose(line.y, np.multiply(expected, 100 if value == "normalised" else 1))


def test_each_head_is_a_dot() -> None:
    found = looks.distance("plain", depth=3, heads=4)
    found.values["attended"][1, 3] = np.nan  # a layer with fewer heads
    (trace,) = dots(draw(found.kind, [found])[0], "plain")
    seen = {(layer, head): y for (layer, head), y in zip(trace.customdata, trace.y, strict=True)}
    assert len(seen) == 11
    assert seen[2, 1] == found.values["attended"][1, 0]


@pytest.mark.parametrize(
    ("make", "figure", "less", "more"),
    [
        (looks.entropy, 0, "lower", "higher"),
        (looks.distance, 0, "nearer", "farther"),
        (looks.stability, 0, "less stable", "more stable"),
        (looks.diversity, 0, "less alike", "more alike"),
        (looks.overfocus, 0, "lower", "higher"),
        (looks.overfocus, 2, "lower", "higher"),
        (looks.softmax, 2, "lower", "higher"),
        (looks.maps, 1, "more", "fewer"),  # a higher level raises weights to a lower power: flatter rows
    ],
)
def test_the_finding_states_the_direction(make, figure: int, less: str, more: str) -> None:
    if make is looks.maps:
        less, more = more, less
    low, high = make("low", level=0.3), make("high", level=0.7)
    kind = low.kind
    assert draw(kind, [high, low])[figure].finding.endswith(f" {less}); noise not known")
    assert draw(kind, [low, high])[figure].finding.endswith(f" {more}); noise not known")
    assert draw(kind, [low, replace(low, subject="again")])[figure].finding.endswith("(the same); noise not known")


def test_deep_half_is_the_second_half_of_the_layers() -> None:
    found = looks.entropy(depth=5, heads=2)
    assert reading("mean")(found)[0] == pytest.approx(found.values["mean"][2:].mean())
    assert f"{found.values['mean'][2:].mean():.2f} nats" in draw(found.kind, [found])[0].finding
    other = replace(found, kind="of_somebody_else")
    assert deep_half_finding([other], "mean", "It").sentence.startswith(
        f"It in the deep half of the layers: {found.values['mean'][2:].mean():.2f}"
    )


def test_entropy_bounds_are_drawn_once_if_equal() -> None:
    def grey(found: list[Measurement]) -> list:
        return [t for t in draw("attention_entropy", found)[0].plot.data if t.line.dash == "dot" and t.mode == "lines"]

    (bound,) = [
        t for t in grey([looks.entropy("a", depth=3), looks.entropy("b", depth=6)]) if "log N" in (t.name or "")
    ]
    np.testing.assert_allclose(bound.y, np.full(6, np.log(50)))
    other = with_value(looks.entropy("b"), bound=np.full(4, np.log(17)))
    assert len([t for t in grey([looks.entropy("a"), other]) if "log N" in (t.name or "")]) == 2


def test_models_without_a_class_token_have_no_class_token_figure() -> None:
    found = with_value(looks.entropy(), class_row=np.full((4, 3), np.nan))
    assert len(draw(found.kind, [found])) == 2
    assert len(draw(found.kind, [found, looks.entropy("b")])) == 3


def test_errors_are_drawn_as_95_percent_and_judge_the_difference() -> None:
    a, b = looks.entropy("a", level=0.50), looks.entropy("b", level=0.51)
    wide = [with_value(m, mean_error=np.full((4, 3), 0.5)) for m in (a, b)]
    drawn = draw(a.kind, wide)[0]
    np.testing.assert_allclose(lines(drawn, "a")[0].error_y.array, np.full(4, 1.96 * 0.5))
    assert "within the noise" in drawn.finding
    narrow = [with_value(m, mean_error=np.full((4, 3), 1e-4)) for m in (a, b)]
    assert "within the noise" not in draw(a.kind, narrow)[0].finding
    assert error_by_layer(a, "mean") is None


def test_a_band_lies_between_the_percentiles() -> None:
    found = looks.entropy("a")
    (shade,) = [trace for trace in draw(found.kind, [found])[0].plot.data if trace.fill == "toself"]
    low, high = (found.values[name].mean(1) for name in ("p15", "p85"))
    np.testing.assert_allclose(shade.y, [*high, *low[::-1]])


def test_the_band_uses_pooled_percentiles_if_stored() -> None:
    found = with_value(looks.entropy("a"), pooled_p15=np.full(4, 0.7), pooled_p85=np.full(4, 3.1))
    figure = draw(found.kind, [found])[0]
    (shade,) = [trace for trace in figure.plot.data if trace.fill == "toself"]
    np.testing.assert_allclose(shade.y, [3.1] * 4 + [0.7] * 4)
    assert "over all heads" in figure.plot.layout.yaxis.title.text and "15th to 85th" in shade.name
    old = draw(found.kind, [looks.entropy("a")])[0]
    assert "mean over heads" in old.plot.layout.yaxis.title.text


def test_stability_by_layer_is_the_share_of_maps_over_heads() -> None:
    found = looks.stability("a", depth=3, heads=4)
    found.values["histogram"][1, 2:] = np.nan  # a layer of two heads
    drawn = draw(found.kind, [found])[2].plot.data[0]
    expected = [found.values["histogram"][0].mean(0), found.values["histogram"][1, :2].mean(0)]
    np.testing.assert_allclose(np.array(drawn.z)[:2], 100 * np.array(expected), atol=0.005)
    np.testing.assert_allclose(np.array(drawn.z).sum(1), 100, atol=0.1)


def test_stability_names_the_least_stable_layer() -> None:
    found = looks.stability("a")
    found.values["mean"][2] = 0.01
    assert "layer 3 of a: mean similarity 0.010, noise not known" in draw(found.kind, [found])[2].finding
    sure = with_value(found, mean_error=np.full((4, 3), 0.01))
    assert "mean similarity 0.010 ± 0.02" in draw(found.kind, [sure])[2].finding


def test_matrices_of_heads_are_tiles() -> None:
    found = [looks.diversity("a", depth=3, heads=2), looks.diversity("b", depth=2, heads=4)]
    tiles = draw("attention_diversity", found)[1].plot.data
    assert len(tiles) == 3 + 2
    by_name = {tile.name: tile for tile in tiles}
    np.testing.assert_allclose(by_name["b, layer 2"].z, found[1].values["head_pairs"][1], atol=1e-3)
    assert by_name["b, layer 2"].text[0][3] == "heads 1 and 4"


def test_the_two_most_similar_heads_are_found() -> None:
    found = looks.diversity("a", depth=3, heads=4, level=0.2)
    found.values["head_pairs"][1, 1, 3] = found.values["head_pairs"][1, 3, 1] = 0.9
    sentence = draw(found.kind, [found])[1].finding
    assert sentence == "The two most similar heads: 2 and 4 in layer 2 of a, similarity 0.900, noise not known"
    doubt = {"head_pairs_error": np.full((3, 4, 4), 0.01)}
    dims = {**found.dims, "head_pairs_error": found.dims["head_pairs"]}
    sure = replace(found, values={**found.values, **doubt}, dims=dims, errors={"head_pairs": "head_pairs_error"})
    assert draw(found.kind, [sure])[1].finding.endswith("similarity 0.900 ± 0.020")


def test_local_heads_are_counted() -> None:
    found = with_value(looks.diversity("a", depth=2, heads=2), neighbourhood_mass=np.array([[0.6, 0.4], [0.9, 0.1]]))
    assert "50.0 %" in draw(found.kind, [found])[3].finding


def test_overfocus_draws_the_first_share_beside_uniform_attention() -> None:
    found = looks.overfocus("a", depth=3)
    drawn = draw(found.kind, [found])[0]
    np.testing.assert_allclose(lines(drawn, "a")[0].y, 100 * found.values["top"][0].mean(1))
    assert list(lines(drawn, "uniform attention")[0].y) == [5.0] * 3
    assert "%" in drawn.plot.layout.yaxis.title.text, "as in the table"
    assert re.search(rf": {100 * found.values['top'][0, 1:].mean():.1f}\d* %", drawn.finding)
    assert "5 % of the tokens" in drawn.finding


def test_overfocus_also_shows_the_mean_over_heads() -> None:
    found = looks.overfocus("a", depth=3)
    each, of_mean = lines(draw(found.kind, [found])[1], "a")
    np.testing.assert_allclose(each.y, 100 * found.values["top1"].mean(1))
    np.testing.assert_allclose(of_mean.y, 100 * found.values["top1_of_mean"])
    gini = lines(draw(found.kind, [found])[2], "a")[0]
    np.testing.assert_allclose(gini.y, found.values["gini"].mean(1))
    assert (each.xaxis, of_mean.xaxis) == ("x", "x2")
    assert each.showlegend and not of_mean.showlegend


def test_a_row_of_attention_is_laid_out_on_the_grid() -> None:
    found = looks.maps("a", heads=2, grid=(3, 4))
    pictures = draw(found.kind, [found])[0].plot.data
    assert len(pictures) == 2 * 3  # two images; the mean and two heads
    row = found.values["blocks.0"][1, 1, 0]  # the class token of the second image, second head
    tile = next(t for t in pictures if t.name == "a, image 7, class token, 2")
    np.testing.assert_allclose(tile.z, row[1:].reshape(3, 4), atol=1e-4)
    average = next(t for t in pictures if t.name == "a, image 0, class token, mean")
    np.testing.assert_allclose(average.z, found.values["blocks.0"][0].mean(0)[0, 1:].reshape(3, 4), atol=1e-4)


def test_a_few_selected_tokens_are_drawn_as_pictures() -> None:
    found = looks.maps("a", depth=1, queries=(5, 9))
    (only,) = draw(found.kind, [found])
    assert len(only.plot.data) == 2 * 2 * 4 and "token 5 and token 9" in only.finding
    assert only.plot.layout.yaxis.range[0] > only.plot.layout.yaxis.range[1]  # the first row on top


def test_large_maps_are_averaged_down() -> None:
    found = looks.maps("a", depth=1, heads=1, grid=(14, 14))
    whole = draw(found.kind, [found])[1].plot.data[0]
    assert np.shape(whole.z) == (49, 49)
    np.testing.assert_allclose(np.mean(whole.z), found.values["blocks.0"][0, 0].mean(), rtol=0.05)


def test_attention_on_one_key_spreads_over_one() -> None:
    found = looks.maps("a", depth=1, heads=1)
    found.values["blocks.0"][:] = np.eye(13)
    assert draw(found.kind, [found])[1].finding.endswith(": 1.00, noise not known")
    found.values["blocks.0"][:] = 1 / 13
    assert draw(found.kind, [found])[1].finding.endswith(": 13.0, noise not known")


def test_softmax_is_steepest_on_the_diagonal() -> None:
    found = looks.softmax("a")
    plane = draw(found.kind, [found])[0]
    first, norm = plane.plot.data
    np.testing.assert_allclose(first.z, found.values["plane_softmax"], atol=1e-4)
    assert np.array(norm.z).argmax(1).tolist() == list(range(9))
    assert "0.5 where they are equal, 0.00067 where they differ by 8" in plane.finding


def test_steepness_by_entropy_has_gaps_in_empty_bins() -> None:
    found = looks.softmax("a")
    drawn = draw(found.kind, [found])[1]
    y = lines(drawn, "a")[0].y
    assert y[0] is None
    np.testing.assert_allclose(y[1:], found.values["by_entropy"][:, 1:].mean(0))
    closed = lines(drawn, "one key and N - 1 equal ones")[0]
    np.testing.assert_allclose(closed.x, np.linspace(0, 1, 7))


@pytest.mark.parametrize(("level", "word"), [(0.5, "rises"), (-0.05, "falls"), (0.0, "stays at")])
def test_the_weights_of_scaled_broadcasting_rise_or_fall_with_depth(level: float, word: str) -> None:
    found = looks.scale("a", level=level)
    (drawn,) = draw(found.kind, [found])
    ratio, average, absolute = lines(drawn, "a")
    for line, name in ((ratio, "ratio"), (average, "mean"), (absolute, "mean_absolute")):
        np.testing.assert_allclose(line.y, found.values[name])
    assert f"the ratio {word}" in drawn.finding


def test_a_model_without_a_value_is_omitted_and_keeps_its_colour() -> None:
    rich, poor = looks.distance("rich"), looks.distance("poor")
    poor = replace(poor, values={"distance": poor.values["distance"]}, dims={"distance": poor.dims["distance"]})
    plot = curves([poor, rich], "attended", "y")
    assert {trace.name for trace in plot.data} == {"rich", "rich, heads"}
    assert lines(draw(rich.kind, [poor, rich])[1], "rich")[0].line.color == plot.data[-1].line.color


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 9))
def test_shrunk_is_the_mean_of_blocks(rows: int, columns: int, most: int) -> None:
    matrix = np.random.default_rng(rows * 100 + columns).random((rows, columns))
    small = shrunk(matrix, most)
    assert small.shape == (min(rows, most), min(columns, most))
    edges = [[len_ * i // min(len_, most) for i in range(min(len_, most) + 1)] for len_ in matrix.shape]
    for i in range(small.shape[0]):
        for j in range(small.shape[1]):
            block = matrix[edges[0][i] : edges[0][i + 1], edges[1][j] : edges[1][j + 1]]
            assert small[i, j] == pytest.approx(block.mean())


def test_names_and_numbers_are_shortened() -> None:
    assert len(short("x" * 100, 21)) == 21 and short("abc") == "abc"
    assert rounded(np.array([[0.123456, np.nan]])).tolist()[0][0] == 0.1235


def test_figures_that_are_not_in_the_papers_are_labelled() -> None:
    assert [figure.paper for figure in draw("attention_distance", [looks.distance()])] == [
        "CB Fig. 7b, there the mean over all pairs",
        "CB Fig. 7b",
    ]
    papers = [figure.paper for figure in draw("attention_entropy", [looks.entropy()])]
    assert papers == ["CB Fig. 4", "CB Fig. 4, there in nats", "CB Fig. 7a"]
