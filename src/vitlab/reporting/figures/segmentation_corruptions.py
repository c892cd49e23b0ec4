"""mIoU under each corruption with 95 % intervals over runs (CB Table 9), by group (TAPADL Table 4) and by class, and
predictions beside the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, bars, empty_plot, plain, remove_unused_bar_notes, start_at_zero
from vitlab.reporting.headline import Headline, describe_number
from vitlab.reporting.label_maps import coloured, picture_rows
from vitlab.reporting.percent import percent
from vitlab.reporting.readings import reading

_PAPERS = {"context_broadcasting": "CB Table 9", "cityscapes_c": "TAPADL Table 4", "by_condition": "TAPADL Table 4"}
_PICTURES = 4  # the maximum number of images that are shown
_MOST = 20  # the maximum number of bars per model; more conditions are averaged by corruption


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Bars by condition, or by corruption if there are many; a second figure by group if there are groups."""
    paper = _PAPERS.get(str(measurements[0].settings.get("suite")), "CB Table 9; TAPADL Table 4")
    plot = _bars(measurements, [_by_condition(measurement) for measurement in measurements])
    figures = [Figure(_finding(measurements), paper, plot)]
    grouped = [measurement for measurement in measurements if np.size(measurement.values.get("group_miou", ())) > 1]
    if len(grouped) == len(measurements):
        groups = [_named(measurement, "group", "group_miou") for measurement in measurements]
        figures.append(Figure(_group_finding(measurements), paper, _bars(measurements, groups)))
    return [*figures, *_by_class(measurements), *_pictures(measurements)]


def _by_class(measurements: Sequence[Measurement]) -> list[Figure]:
    """IoU of each class on clean images, or the mean over the conditions where there are no clean images."""
    plot = empty_plot("", "IoU, %")
    lowest = []
    for index, measurement in enumerate(measurements):
        if "clean_class_iou" in measurement.values:
            iou = percent(measurement, "clean_class_iou")
        elif "class_iou" in measurement.values:
            iou = np.ma.filled(np.ma.masked_invalid(percent(measurement, "class_iou")).mean(0), np.nan)
        else:
            continue
        names = [str(name) for name in measurement.axes["class"]]
        bars(plot, [_words(name) for name in names], iou, measurement.subject, index)
        if np.isfinite(iou).any():
            worst = int(np.nanargmin(iou))
            lowest.append(f"{_words(names[worst])} for {measurement.subject} ({iou[worst]:.1f} %)")
    if not lowest:
        return []
    start_at_zero(plot)
    plot.update_xaxes(tickangle=-40)
    return [Figure(f"The class with the lowest IoU: {', '.join(lowest)}", "", remove_unused_bar_notes(plot))]


def _pictures(measurements: Sequence[Measurement]) -> list[Figure]:
    """Images, truth and the predictions of each model that was measured on the same images."""
    shown = [measurement for measurement in measurements if "example_image" in measurement.values]
    if not shown:
        return []
    first = shown[0]
    truth = np.asarray(first.values["example_truth"])
    same = [one for one in shown if np.array_equal(one.values["example_truth"], truth)]
    names = [str(name) for name in first.axes["class"]]
    rows = [
        [
            np.asarray(first.values["example_image"])[place],
            coloured(truth[place], len(names)),
            *(coloured(np.asarray(one.values["example_prediction"])[place], len(names)) for one in same),
        ]
        for place in range(min(_PICTURES, len(truth)))
    ]
    counted = truth < len(names)
    shares = [
        float((np.asarray(one.values["example_prediction"]) == truth)[counted].mean()) if counted.any() else np.nan
        for one in same
    ]
    found = ", ".join(f"{100 * share:.1f} % for {one.subject}" for share, one in zip(shares, same, strict=True))
    seen = {*np.unique(truth), *(label for one in same for label in np.unique(one.values["example_prediction"]))}
    present = [name if index in seen else "" for index, name in enumerate(names)]
    plot = picture_rows(rows, ["image", "truth", *(one.subject for one in same)], present)
    return [Figure(f"Pixels of these images that are predicted correctly: {found}; black: not counted", "", plot)]


def _bars(measurements: Sequence[Measurement], rows: Sequence[dict[str, tuple[float, float]]]) -> Any:
    plot = empty_plot("", "mIoU, % (bars: 95 % over runs)")
    for index, (measurement, row) in enumerate(zip(measurements, rows, strict=True)):
        heights, halves = ([pair[part] for pair in row.values()] for part in (0, 1))
        errors = np.array(halves) / 1.96  # `bars` takes standard errors
        bars(plot, [_words(name) for name in row], heights, measurement.subject, index, error=errors)
    start_at_zero(plot)
    plot.update_xaxes(tickangle=-40)
    return remove_unused_bar_notes(plot)


def _by_condition(measurement: Measurement) -> dict[str, tuple[float, float]]:
    """mIoU in percent and half its 95 % interval; clean images first."""
    first = {"clean": (float(percent(measurement, "clean_miou")), np.nan)} if "clean_miou" in measurement.values else {}
    few = len(measurement.axes.get("condition", ())) <= _MOST or "corruption_miou" not in measurement.values
    axis, name = ("condition", "miou") if few else ("corruption", "corruption_miou")
    return {**first, **_named(measurement, axis, name)}


def _named(measurement: Measurement, axis: str, name: str) -> dict[str, tuple[float, float]]:
    if name not in measurement.values:
        return {}
    heights, halves = percent(measurement, name), _half(measurement, name)
    pairs = zip(heights.tolist(), np.broadcast_to(halves, heights.shape).tolist(), strict=True)
    return dict(zip(map(str, measurement.axes[axis]), pairs, strict=True))


def _half(measurement: Measurement, name: str) -> np.ndarray:
    """Half the 95 % interval over runs or repeats in percent; NaN if unknown, as for a single run."""
    interval = percent(measurement, f"{name}_interval")
    half = np.where(np.isfinite(interval), interval, 1.96 * percent(measurement, measurement.errors.get(name, "")))
    return np.asarray(half)


def _finding(measurements: Sequence[Measurement]) -> Headline:
    name = next((n for n in ("mean_miou", "clean_miou") if any(n in m.values for m in measurements)), "mean_miou")
    title = "Mean mIoU under corruptions" if name == "mean_miou" else "mIoU on clean images"
    if all(measurement.settings.get("suite") == "by_condition" for measurement in measurements):
        title = "Mean mIoU over the conditions"
    return describe_number(title, measurements, reading(name, 100), "%", name=name)


def _group_finding(measurements: Sequence[Measurement]) -> str:
    """The group of corruptions with the lowest mIoU of each model."""
    parts = []
    for measurement in measurements:
        row = {name: pair[0] for name, pair in _named(measurement, "group", "group_miou").items() if pair[0] == pair[0]}
        worst = min(row, key=lambda name: row[name], default="")
        parts.append(
            f"{_words(worst)} for {measurement.subject} ({row[worst]:.1f} %)"
            if row
            else f"not known for {measurement.subject}"
        )
    return f"The group of corruptions with the lowest mIoU: {', '.join(parts)}"


def _words(name: str) -> str:
    return plain(name.replace("_", " "))
