"""Questions with their images and answers, right and wrong, and the accuracy of each kind of question."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from io import BytesIO

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Fragment

_STYLE = """
.asked { display: flex; flex-wrap: wrap; gap: 1rem; padding: 0; list-style: none; }
.asked li { width: 11rem; }
.asked img { width: 11rem; height: 11rem; object-fit: contain; image-rendering: pixelated; background: #8882; }
.asked p { margin: 0.2rem 0; overflow-wrap: anywhere; }
.answers th, .answers td { padding: 0.1rem 0.8rem 0.1rem 0; text-align: left; }
"""


def draw(measurements: Sequence[Measurement]) -> list[Fragment]:
    """One fragment: a table of accuracies, then the examples of each model; every string is escaped."""
    parts = [f"<style>{_STYLE}</style>", _table(measurements)]
    for measurement in measurements:
        examples = "".join(_example(measurement, place) for place in range(len(measurement.values["correct"])))
        parts.append(f'<h4>{escape(measurement.subject)}</h4>\n<ul class="asked">{examples}</ul>')
    return [Fragment("\n".join(parts))]


def _table(measurements: Sequence[Measurement]) -> str:
    """Accuracy in per cent by kind of question, a column for each model."""
    kinds = list(dict.fromkeys(kind for measurement in measurements for kind in measurement.axes["kind"]))
    head = "".join(f"<th>{escape(measurement.subject)}</th>" for measurement in measurements)
    rows = "".join(
        f"<tr><th>{escape(str(kind))}</th>{''.join(_cell(measurement, kind) for measurement in measurements)}</tr>"
        for kind in kinds
    )
    total = "".join(f"<td>{_overall(measurement):.1f} %</td>" for measurement in measurements)
    return (
        '<table class="answers"><caption>Accuracy of answers by kind of question</caption>'
        f"<tr><th>kind</th>{head}</tr>{rows}<tr><th>all questions</th>{total}</tr></table>"
    )


def _cell(measurement: Measurement, kind: object) -> str:
    if kind not in measurement.axes["kind"]:
        return "<td>not asked</td>"
    place = measurement.axes["kind"].index(kind)
    accuracy, count = measurement.values["accuracy"][place], int(measurement.values["questions"][place])
    return f"<td>{100 * float(accuracy):.1f} % of {count}</td>"


def _overall(measurement: Measurement) -> float:
    counts = np.asarray(measurement.values["questions"], dtype=float)
    return float(100 * (np.asarray(measurement.values["accuracy"]) * counts).sum() / counts.sum())


def _example(measurement: Measurement, place: int) -> str:
    values = measurement.values
    question, answer, prediction = (str(values[name][place]) for name in ("question", "answer", "prediction"))
    correct = float(values["correct"][place])
    word = "right" if correct >= 1 else "wrong" if correct <= 0 else f"{100 * correct:.0f} % right"
    mark = "✓" if correct >= 0.5 else "✗"
    truth = "" if prediction == answer else f"<p>answer: {escape(answer)}</p>"
    return (
        f'<li><img src="{_picture(values["image"][place])}" alt="image of the question: {escape(question)}">'
        f"<p>{escape(question)}</p><p>{mark} <strong>{escape(prediction)}</strong> ({word})</p>{truth}</li>"
    )


def _picture(pixels: np.ndarray) -> str:
    """Pixels (h, w, 3) as a PNG in a data URI."""
    from PIL import Image

    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels, dtype=np.uint8)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
