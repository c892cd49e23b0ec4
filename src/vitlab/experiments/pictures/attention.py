"""Pictures of TAPADL's figures on attention: maps (Figs. 1, 3), heads (Fig. 4), and stability (Figs. 1, 5)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vitlab.core.experiment import Results, Scale
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.pictures.curves import (
    Curve,
    Curves,
    draw_curves,
    named_axis,
    network_at,
    width_of,
)
from vitlab.experiments.pictures.effects import verdict_lines, write_lines
from vitlab.experiments.pictures.modules import mean_sorted
from vitlab.experiments.robust_token_attention._numbers import (
    GINI,
    HEAD_SIMILARITY,
    ROW_SIMILARITY,
    SELF_MASS,
    SIMILARITY,
    Number,
)
from vitlab.experiments.robust_token_attention._variants import TITLES
from vitlab.experiments.robust_token_attention.fig_3 import AROUND
from vitlab.experiments.robust_token_attention.fig_4 import DIAGONAL
from vitlab.reporting.svg.axes import Panel, round_axis
from vitlab.reporting.svg.canvas import Canvas
from vitlab.reporting.svg.heat_map import HEAT, draw_heat_map

__all__ = ["draw_head_similarity", "draw_map_and_stability", "draw_maps", "draw_stability"]

_SIDE, _TOP, _STEP = 220, 92, 260
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def _network(scale: Scale) -> str:
    return network_at(scale, "ViT-Ti on CIFAR-100", "FAN-B-Hybrid")


def _names(*arms: str) -> dict[str, str]:
    """Arms with their names; the paper names the variants of FAN-B-Hybrid."""
    return {arm: f"+ {TITLES[arm]}" if TITLES[arm] else "baseline" for arm in arms}


def _mean(number: Number, results: Results, arm: str) -> float | None:
    found = list(number.of(results, arm).values())
    return float(np.mean(found)) if found else None


def _map(canvas: Canvas, results: Results, arm: str, name: str, left: float, numbers: Mapping[str, Number]) -> None:
    """The map of the last layer for one image, with numbers below it."""
    canvas.text(left, _TOP - 10, name, "head")
    measured = next((found for _, found in results.select(arm, "attention_maps")), None)
    values = None if measured is None else measured.values.get(str(measured.axes["layer"][-1]))
    if values is None:
        canvas.add("rect", "frame", x=left, y=_TOP, width=_SIDE, height=_SIDE)
        why = "not run at this scale" if measured is None else "too large for the record"
        canvas.text(left + _SIDE / 2, _TOP + _SIDE / 2, why, "soft middle")
    else:
        draw_heat_map(canvas, np.asarray(values, dtype=float)[0, 0], left, _TOP, _SIDE)
    canvas.text(left + _SIDE / 2, _TOP + _SIDE + 16, "input token", "middle")
    canvas.text(left - 8, _TOP + _SIDE / 2, "output token", "middle", turn=-90)
    for line, (words, number) in enumerate(numbers.items()):
        mean = _mean(number, results, arm)
        text = f"{words}: {'not run' if mean is None else f'{mean:.3g}'}"
        canvas.text(left, _TOP + _SIDE + 38 + 17 * line, text, "small")


def _quantiles(results: Results, arm: str) -> list[float]:
    """Quantiles of the similarity over layers, heads and images, from the mean distribution over the runs if stored."""
    measured = [each.values for _, each in results.select(arm, "attention_stability")]
    found = [np.asarray(values["distribution"]) for values in measured if "distribution" in values]
    if not found:
        return []
    shares = np.concatenate(([0.0], np.cumsum(np.mean(found, axis=0))))
    edges = np.linspace(0, 1, len(shares))
    first = np.searchsorted(shares, _LEVELS) - 1  # the bin in which a quantile lies
    parts = (np.array(_LEVELS) - shares[first]) / (shares[first + 1] - shares[first])
    return [float(each) for each in edges[first] + parts * (edges[first + 1] - edges[first])]


def _boxes(canvas: Canvas, results: Results, names: Mapping[str, str], left: float) -> None:
    """A box for each arm."""
    bottom, right = _TOP + _SIDE, left + 110 * len(names)
    x = named_axis(canvas, list(names.values()), left, right, bottom, "")
    y = round_axis([0.0, 1.0], bottom, _TOP, "cosine similarity")
    panel = Panel(canvas, x, y, "Clean and noisy attention")
    panel.frame()
    for place, arm in enumerate(names):
        quantiles, mean = _quantiles(results, arm), _mean(SIMILARITY, results, arm)
        if mean is None:
            canvas.text(x(place), (bottom + _TOP) / 2, "not run", "soft small middle")
            continue
        if quantiles:
            p5, p25, median, p75, p95 = map(y, quantiles)
            canvas.line(x(place), p5, x(place), p95, "bar ours")
            canvas.add("rect", "box conv", x=x(place) - 20, y=p75, width=40, height=p25 - p75)
            canvas.line(x(place) - 20, median, x(place) + 20, median, "bar ours")
        canvas.add("circle", "mark ours", cx=x(place), cy=y(mean), r=3.5)
        canvas.text(x(place), bottom + 32, f"mean {mean:.3f}", "small middle")


_BOX = (
    "Similarity over all layers, heads and images. Boxes: quartiles and median; lines: 5 % to 95 %; points: mean. "
    "A point without a box: the runs stored no distribution. The paper prints no numbers."
)

_COLOURS = "Maps: no colour at 0, full colour at the largest entry."


def draw_map_and_stability(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. 1: maps of the last layer at the left, the distribution of the similarity at the right."""
    names = _names("plain", "tap_adl")
    lines = [
        _BOX,
        f"{_COLOURS} Those on noisy images, the paper's second column, are not stored.",
        *verdict_lines(experiment, results, scale),
    ]
    about = f"Ours: {_network(scale)}. Left: one image, mean of the heads. Gini coefficient: mean over the runs."
    canvas = Canvas(
        round(max(2 * _STEP + 360, width_of([*lines, about]))),
        _TOP + _SIDE + 80 + 20 * len(lines),
        experiment.title,
        about,
        HEAT,
    )
    for index, (arm, name) in enumerate(names.items()):
        _map(canvas, results, arm, name, 40 + _STEP * index, {"Gini coefficient": GINI})
    _boxes(canvas, results, names, 2 * _STEP + 100)
    write_lines(canvas, _TOP + _SIDE + 76, lines)
    return str(canvas)


def draw_maps(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. 3: maps of the last layer of the four variants, with the numbers of the claims."""
    names = _names(*TITLES)
    numbers = {
        "Gini coefficient": GINI,
        "attention to itself": SELF_MASS,
        "similarity of rows": ROW_SIMILARITY,
        "attention to 8 neighbours": AROUND,
    }
    lines = [
        f"{_COLOURS} Those on noisy images are not stored. The paper prints no numbers.",
        *verdict_lines(experiment, results, scale),
    ]
    about = f"Ours: {_network(scale)}. Maps: one image, mean of the heads. Numbers below them: mean over the runs."
    canvas = Canvas(
        round(max(_STEP * 4 + 30, width_of([*lines, about]))),
        _TOP + _SIDE + 122 + 20 * len(lines),
        experiment.title,
        about,
        HEAT,
    )
    for index, (arm, name) in enumerate(names.items()):
        _map(canvas, results, arm, name, 40 + _STEP * index, numbers)
    write_lines(canvas, _TOP + _SIDE + 122, lines)
    return str(canvas)


def draw_head_similarity(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. 4: how local the heads of the last layer are, and the similarity of heads with the paper's numbers."""
    names = _names("plain", "tap_adl")
    local = {arm: mean_sorted(results, arm, "attention_diversity", "neighbourhood_mass") for arm in names}
    kinds = {"plain": "ink", "tap_adl": "ours"}
    curves = [Curve(f"{name}, ours", kinds[arm], range(len(local[arm])), local[arm]) for arm, name in names.items()]
    heads = [str(head + 1) for head in range(max(map(len, local.values())))]
    found = [(place, _mean(HEAD_SIMILARITY, results, arm)) for place, arm in enumerate(names)]
    own = [(place, value) for place, value in found if value is not None]
    printed = [each.value for each in experiment.published if each.value is not None]
    panels = [
        Curves(
            "Attention to 3×3 neighbours",
            "head of the last layer, in ascending order",
            "share of attention",
            curves,
            heads,
            (0.0, 1.0),
            {"above: a diagonal head": (DIAGONAL, "ink dot")},
        ),
        Curves(
            "Similarity of heads, all layers",
            "model",
            "cosine similarity",
            [
                Curve("similarity, paper", "paper dash", range(len(printed)), printed),
                Curve("similarity, ours", "ours dash", [place for place, _ in own], [value for _, value in own]),
            ],
            list(names.values()),
            (0.0, 1.0),
        ),
    ]
    about = f"Ours: {_network(scale)}, mean over the runs. The maps that the paper shows are too large for records."
    return draw_curves(experiment, about, panels, verdict_lines(experiment, results, scale))


def draw_stability(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. 5: the distribution of the similarity for the four variants."""
    lines = [_BOX, *verdict_lines(experiment, results, scale)]
    about = f"Ours: {_network(scale)}, Gaussian noise of severity 3."
    canvas = Canvas(
        round(max(560, width_of([*lines, about]))), _TOP + _SIDE + 76 + 20 * len(lines), experiment.title, about
    )
    _boxes(canvas, results, _names(*TITLES), 80)
    write_lines(canvas, _TOP + _SIDE + 70, lines)
    return str(canvas)
