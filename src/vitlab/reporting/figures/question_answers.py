"""Questions with their images and answers, right and wrong, and accuracy and prior of each kind of question."""

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
    """Accuracy in per cent by kind of question, with the prior if it is known, a column for each model."""
    kinds = list(dict.fromkeys(kind for measurement in measurements for kind in _asked(measurement)))
    head = "".join(f"<th>{escape(measurement.subject)}</th>" for measurement in measurements)
    rows = "".join(
        f"<tr><th>{escape(str(kind))}</th>{''.join(_cell(measurement, kind) for measurement in measurements)}</tr>"
        for kind in kinds
    )
    total = "".join(_total(measurement) for measurement in measurements)
    known = any("prior" in measurement.values for measurement in measurements)
    prior = "; prior: the most frequent answer of the kind is always given" if known else ""
    return (
        f'<table class="answers"><caption>Accuracy of answers by kind of question{prior}</caption>'
        f"<tr><th>kind</th>{head}</tr>{rows}<tr><th>all questions</th>{total}</tr></table>"
    )


def _asked(measurement: Measurement) -> list[object]:
    """The kinds of questions that were asked."""
    counts = np.asarray(measurement.values["questions"])
    return [kind for kind, count in zip(measurement.axes["kind"], counts, strict=True) if count]


def _cell(measurement: Measurement, kind: object) -> str:
    if kind not in _asked(measurement):
        return "<td>not asked</td>"
    place = measurement.axes["kind"].index(kind)
    accuracy, count = measurement.values["accuracy"][place], int(measurement.values["questions"][place])
    prior = f" (prior {100 * float(measurement.values['prior'][place]):.1f} %)" if "prior" in measurement.values else ""
    return f"<td>{100 * float(accuracy):.1f} % of {count}{prior}</td>"


def _total(measurement: Measurement) -> str:
    """The accuracy over all questions, and its prior if it is known."""
    counts = np.asarray(measurement.values["questions"], dtype=float)
    accuracy = 100 * np.nansum(np.asarray(measurement.values["accuracy"]) * counts) / counts.sum()
    known = measurement.values.get("overall_prior")
    prior = "" if known is None else f" (prior {100 * float(known):.1f} %)"
    return f"<td>{accuracy:.1f} % of {counts.sum():.0f}{prior}</td>"


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
