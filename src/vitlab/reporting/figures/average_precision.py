"""Precision-recall curves, AP by overlap and by class, and predictions beside the truth (CB Table 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, bars, empty_plot, line, remove_unused_bar_notes, start_at_zero
from vitlab.reporting.headline import Headline, describe_number
from vitlab.reporting.label_maps import picture_rows
from vitlab.reporting.object_pictures import with_objects
from vitlab.reporting.panels import on_panel, panels_with_own_axes
from vitlab.reporting.readings import reading

_KINDS = ("box", "mask")
_CURVES = {0.5: "solid", 0.75: "dot"}  # overlaps, and their dashes
_PICTURES = 6  # the maximum number of images that are shown
_CLASSES = 40  # more classes have no bars


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Precision against recall, AP by overlap, AP by class, and pictures."""
    figures = [
        Figure(_finding(measurements, "box_ap50", "Box AP at an overlap of 0.5"), "", _recall(measurements)),
        Figure(_finding(measurements, "mask_ap", "Mask AP over all overlaps"), "CB Table 7", _overlap(measurements)),
    ]
    if max(len(one.axes["class"]) for one in measurements) <= _CLASSES:
        figures.append(Figure(_lowest(measurements), "", _by_class(measurements)))
    return [*figures, *_pictures(measurements)]


def _finding(measurements: Sequence[Measurement], name: str, words: str) -> Headline:
    return describe_number(words, measurements, reading(name, 100), "%", name=name)


def _recall(measurements: Sequence[Measurement]) -> Any:
    plot = panels_with_own_axes(
        [f"{kind}es" if kind == "box" else f"{kind}s" for kind in _KINDS],
        ["recall, %"] * 2,
        ["precision, %, mean over classes"] * 2,
        height=360,
    )
    for index, measurement in enumerate(measurements):
        recall = [100 * each for each in measurement.axes["recall"]]
        for overlap, dash in _CURVES.items():
            place = list(measurement.axes["threshold"]).index(overlap)
            for panel, kind in enumerate(_KINDS):
                precision = 100 * np.asarray(measurement.values[f"{kind}_precision"])[place]
                name = f"{measurement.subject}, overlap {overlap}"
                style = {"mode": "lines", "line": {"dash": dash}, "showlegend": panel == 0, "legendgroup": name}
                line(plot, recall, precision, name, index, **style, **on_panel(panel))
    plot.update_yaxes(range=[0, 102])
    plot.update_xaxes(range=[0, 100])
    return plot


def _overlap(measurements: Sequence[Measurement]) -> Any:
    plot = panels_with_own_axes(["boxes", "masks"], ["overlap (IoU)"] * 2, ["AP, %"] * 2, height=340)
    for index, measurement in enumerate(measurements):
        for panel, kind in enumerate(_KINDS):
            values = 100 * np.asarray(measurement.values[f"{kind}_ap_by_threshold"])
            style = {"showlegend": panel == 0, "legendgroup": measurement.subject, **on_panel(panel)}
            line(plot, measurement.axes["threshold"], values, measurement.subject, index, **style)
    start_at_zero(plot)
    return plot


def _by_class(measurements: Sequence[Measurement]) -> Any:
    plot = empty_plot("", "box AP at an overlap of 0.5, %")
    for index, measurement in enumerate(measurements):
        values = 100 * np.asarray(measurement.values["box_ap50_by_class"])
        bars(plot, [str(name) for name in measurement.axes["class"]], values, measurement.subject, index)
    start_at_zero(plot)
    return remove_unused_bar_notes(plot)


def _lowest(measurements: Sequence[Measurement]) -> str:
    found = []
    for measurement in measurements:
        values = 100 * np.asarray(measurement.values["box_ap50_by_class"], dtype=float)
        if np.isfinite(values).any():
            worst = int(np.nanargmin(values))
            found.append(f"{measurement.axes['class'][worst]} for {measurement.subject} ({values[worst]:.1f} %)")
    return f"The class with the lowest box AP: {', '.join(found)}"


def _pictures(measurements: Sequence[Measurement]) -> list[Figure]:
    """The objects of some images, and the predictions of each model that was measured on the same images."""
    shown = [measurement for measurement in measurements if "example_image" in measurement.values]
    if not shown:
        return []
    first = shown[0]
    images = np.asarray(first.values["example_image"])
    same = [one for one in shown if np.array_equal(one.values["example_image"], images)]
    names = [str(name) for name in first.axes["class"]]
    rows = [
        [with_objects(first, place, "true", names), *(with_objects(one, place, "predicted", names) for one in same)]
        for place in range(min(_PICTURES, len(images)))
    ]
    used = np.concatenate(
        [np.ravel(one.values[f"example_{kind}_labels"]) for one in same for kind in ("true", "predicted")]
    )
    present = [name if (used == index + 1).any() else "" for index, name in enumerate(names)]
    counts = ", ".join(f"{_count(one, 'predicted')} for {one.subject}" for one in same)
    title = (
        f"Predictions with a score of at least 0.5 on these images: {counts}; they have {_count(first, 'true')} objects"
    )
    return [Figure(title, "", picture_rows(rows, ["truth", *(one.subject for one in same)], present))]


def _count(measurement: Measurement, kind: str) -> int:
    return int((np.asarray(measurement.values[f"example_{kind}_labels"])[:_PICTURES] > 0).sum())
