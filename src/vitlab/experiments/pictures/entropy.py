"""Pictures of CB's analyses of attention: entropy and distance by layer (Figs. 4, 7, S12), softmax (Fig. 5)."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Results, Scale
from vitlab.experiments.catalogue import Experiment
from vitlab.reporting.svg.axes import Axis, Panel, draw_lines, layer_axis, round_axis
from vitlab.reporting.svg.canvas import Canvas
from vitlab.reporting.svg.colour_scale import STYLE, draw_scale
from vitlab.reporting.svg.surface import draw_surface

__all__ = ["draw_entropy", "draw_shallow_and_deep", "draw_softmax", "draw_with_cb"]

_BOTTOM, _TOP, _WIDE, _STEP = 340, 90, 250, 330


def _by_layer(results: Results, arm: str, kind: str, value: str) -> np.ndarray:
    """A value by layer: the mean over heads, runs and parts of the images; empty if it was not measured."""
    found = [np.asarray(each.values[value]) for _, each in results.select(arm, kind)]
    if not found:
        return np.zeros(0)
    mean = np.mean(found, axis=0)
    by_layer: np.ndarray = mean if mean.ndim == 1 else np.nanmean(mean, axis=1)
    return by_layer


def _axis(values: list[float], label: str) -> Axis:
    return round_axis(values, _BOTTOM, _TOP, label)


def _panel(canvas: Canvas, index: int, y: Axis, title: str, layers: int) -> Panel:
    left = 70 + _STEP * index
    return Panel(canvas, layer_axis(layers, left, left + _WIDE), y, title)


def draw_entropy(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. 4: the average and the 15th percentile of the entropy by layer, and its bound, for each network."""
    arms = [arm for arm in ("ViT-S", "ViT-B", "DeiT-Ti") if arm != "DeiT-Ti" or scale == "small"]
    published = {each.row: each.value or 0.0 for each in experiment.published if each.value is not None}
    about = f"Scale {scale}. The paper has curves, and two numbers in the text."
    canvas = Canvas(60 + _STEP * len(arms), 456, experiment.title, about)
    y = _axis([0.0, published["bound"]], "entropy [nats]")
    for index, arm in enumerate(arms):
        values = {
            name: _by_layer(results, arm, "attention_entropy", name) for name in ("mean", "pooled_p15", "pooled_p85")
        }
        layers = len(values["mean"]) or 12
        panel = _panel(canvas, index, y, arm if arm != "DeiT-Ti" else "DeiT-Ti (not in the paper)", layers)
        panel.frame()
        panel.level(published["ViT-S and ViT-B"], "paper dash")
        panel.level(published["bound"], "bound dot")
        if not len(values["mean"]):
            panel.note("not run at this scale")
            continue
        numbers = range(1, layers + 1)
        panel.curve(numbers, list(values["mean"]), "ours")
        panel.curve(numbers, list(values["pooled_p15"]), "ours dash", marks=False)
        panel.curve(numbers, list(values["pooled_p85"]), "ours dot", marks=False)
    entries = {"average, ours": "ours", "15th percentile, ours": "ours dash", "85th percentile, ours": "ours dot"}
    draw_lines(canvas, 70, 408, entries)
    high, bound = published["ViT-S and ViT-B"], published["bound"]
    numbers_of_text = {f"paper: averages as high as {high}": "paper dash", f"paper: bound {bound}": "bound dot"}
    draw_lines(canvas, 70, 432, numbers_of_text)
    return str(canvas)


def draw_softmax(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. 5: softmax of two logits as a surface, coloured by its gradient; the gradient against the entropy."""
    measured = [found for _, found in results.select("ViT", "softmax_gradient")]
    found = measured[0]
    about = "Left: as in the paper, which prints no numbers. Right: rows of attention, ours."
    canvas = Canvas(980, 510, experiment.title, about, STYLE)
    height, norm = (np.asarray(found.values[name])[::4, ::4] for name in ("plane_softmax", "plane_norm"))
    canvas.text(30, 80, "softmax(x₁, x₂)₁, coloured by the norm of its gradient", "head")
    place = draw_surface(canvas, height, norm / (norm.max() or 1.0), 20, 440, ("x₁", "x₂"))
    canvas.curve([place(i, i, height[i, i]) for i in range(len(height))], "diagonal dash")
    canvas.text(300, 140, "dashed: x₁ = x₂, uniform attention", "small")
    draw_scale(canvas, 150, 462, "0", f"{float(np.max(found.values['plane_norm'])):.2f}")
    entropy, curve = (np.asarray(found.values[name]) for name in ("curve_entropy", "curve_norm"))
    x = round_axis([0.0, *entropy], 570, 950, "entropy of a row [nats]")
    panel = Panel(canvas, x, round_axis([0.0, 1.0], 380, 96, "‖J‖ / λ"), "Norm of the gradient of softmax")
    panel.frame()
    panel.curve(list(entropy), list(curve), "ink", marks=False)
    shares = np.asarray(found.axes["entropy share"], dtype=float) * float(entropy[-1])
    rows = np.concatenate([np.asarray(each.values["by_entropy"], dtype=float) for each in measured])
    known = np.isfinite(rows)  # a layer has no rows in some intervals of entropy
    counts = known.sum(axis=0)
    means = np.where(known, rows, 0.0).sum(axis=0) / np.where(counts, counts, np.nan)
    panel.curve(list(shares), list(means), "ours")
    for words, kind, y in (
        ("one key against equal others, closed form", "ink", 450),
        ("mean over the rows of the model, by entropy", "ours", 470),
    ):
        canvas.curve([(570, y - 4), (604, y - 4)], kind)
        canvas.text(612, y, words, "small")
    return str(canvas)


def draw_shallow_and_deep(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. S12: (a) the shallow and the deep half of the layers, as entropy and distance; (b) plain and distilled."""
    network = "DeiT-Ti" if scale == "small" else "DeiT-B"
    about = (
        f"Scale {scale}. The paper shows pictures of attention maps, without numbers. Shaded: deep half of the layers."
    )
    canvas = Canvas(60 + _STEP * 3, 430, experiment.title, about)
    measures = {
        "entropy": ("attention_entropy", "mean", "entropy [nats]"),
        "distance": ("attention_distance", "attended", "distance of attention"),
    }
    for index, (name, (kind, value, label)) in enumerate(measures.items()):
        curve = _by_layer(results, "plain", kind, value)
        panel = _panel(canvas, index, _axis([0.0, *curve], label), f"(a) {name}, {network}", len(curve) or 12)
        half = len(curve) // 2
        panel.frame([(half + 0.5, len(curve) + 0.5)] if half else [])
        if not half:
            panel.note("not run at this scale")
            continue
        panel.curve(range(1, len(curve) + 1), list(curve), "ours")
        for low, part in ((0, curve[:half]), (half, curve[half:])):
            level = float(part.mean())
            ends = [(panel.x(low + 0.5), panel.y(level)), (panel.x(low + len(part) + 0.5), panel.y(level))]
            canvas.curve(ends, "ours dash")
            canvas.text(sum(x for x, _ in ends) / 2, panel.y(0) - 10, f"mean {level:.3g}", "small middle")
    share = {arm: _by_layer(results, arm, "attention_entropy", "normalised") for arm in ("plain", "distilled")}
    panel = _panel(canvas, 2, _axis([0.0, 1.0], "entropy / bound"), "(b) plain and distilled DeiT-B", 12)
    panel.frame()
    if len(share["distilled"]):
        for arm, kind in (("plain", "ours"), ("distilled", "ours dash")):
            panel.curve(range(1, len(share[arm]) + 1), list(share[arm]), kind)
    else:
        panel.note("not run at this scale")
    draw_lines(canvas, 70, 408, {"by layer, ours": "ours", "mean of a half, ours": "ours dash"})
    return str(canvas)


def draw_with_cb(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. 7: (a) entropy of the class token and (b) distance of attention by layer, without and with CB."""
    network = "ViT-Ti on CIFAR-100" if scale == "small" else "ViT-S"
    canvas = Canvas(60 + _STEP * 2, 430, experiment.title, f"Ours: {network}. The paper has curves only.")
    measures = {
        "(a) entropy of the class token": ("attention_entropy", "class_row", "entropy [nats]"),
        "(b) distance": ("attention_distance", "distance", "distance of attention"),
    }
    for index, (title, (kind, value, label)) in enumerate(measures.items()):
        curves = {arm: _by_layer(results, arm, kind, value) for arm in ("plain", "cb")}
        numbers = [float(each) for curve in curves.values() for each in curve]
        panel = _panel(canvas, index, _axis(numbers, label), title, len(curves["plain"]) or 12)
        panel.frame()
        if not numbers:
            panel.note("not run at this scale")
        for arm, class_ in (("plain", "ink"), ("cb", "ours")):
            panel.curve(range(1, len(curves[arm]) + 1), list(curves[arm]), class_)
    draw_lines(canvas, 70, 408, {"without CB, ours": "ink", "with CB, ours": "ours"})
    return str(canvas)
