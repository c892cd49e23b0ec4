"""Rows of thumbnails: images on which two models differ most, and images misclassified under each corruption."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.sections import Section

#: The most images of a comparison, the most models that are compared, and of which worst images are shown.
IMAGES, MODELS = 8, 3


@dataclass(frozen=True)
class Thumbnail:
    """A small picture.

    Args:
        source: a data URI.
        words: what it shows, for readers who do not see it.
        lines: of text below.
    """

    source: str
    words: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Strip:
    """Pictures under a title."""

    title: str
    pictures: Sequence[Thumbnail]


def strips(section: Section) -> list[Strip]:
    """The rows of thumbnails of a section; empty if its measurements have none."""
    if section.kind == "calibration" and section.has_baseline:
        return _differing(section)
    if section.kind == "corruptions":
        return _worst(section)
    return []


def _differing(section: Section) -> list[Strip]:
    """For each model the images whose label has the most different probability than in the baseline.

    They are chosen among the images of which pictures are stored. The title says so if these are not all images.
    """
    baseline, *others = section.repeats
    found = []
    for label in others[:MODELS]:
        pairs = [each for each in _pairs(section.repeats[baseline], section.repeats[label]) if _has_pictures(each)]
        candidates = [row for pair in pairs for row in _rows(*pair)]
        candidates.sort(key=lambda row: -abs(row[0] - row[1]))
        pictures = [_compared(row, baseline, label) for row in candidates[:IMAGES]]
        if pictures:
            count = sum(len(one.values["nll_by_image"]) for one, _ in pairs)
            among = "" if len(candidates) == count else f", among {len(candidates)} of {count} images"
            title = f"Images on which {baseline} and {label} differ most{among}"
            found.append(Strip(f"{title}: probability of the label, {baseline} → {label}", pictures))
    return found


def _pairs(first: Sequence[Measurement], second: Sequence[Measurement]) -> Iterator[tuple[Measurement, Measurement]]:
    """Measurements of two models on the same images."""
    for one in first:
        data = one.provenance.get("data")
        other = next((each for each in second if data and each.provenance.get("data") == data), None)
        if other is not None:
            yield one, other


def _has_pictures(pair: tuple[Measurement, Measurement]) -> bool:
    names = ("nll_by_image", "example", "example_index", "example_label")
    lengths = {len(one.values.get("nll_by_image", ())) for one in pair}
    return all(name in one.values for one in pair for name in names) and len(lengths) == 1


Row = tuple[float, float, str, np.ndarray]  # the probability of the label in both models, the label, the picture


def _rows(one: Measurement, other: Measurement) -> list[Row]:
    losses = [np.asarray(each.values["nll_by_image"], dtype=float) for each in (one, other)]
    seen: dict[int, Row] = {}
    for measurement in (one, other):
        places = measurement.values["example_index"].tolist()
        for place, picture, label in zip(
            places, measurement.values["example"], measurement.values["example_label"], strict=True
        ):
            if 0 <= place < len(losses[0]):
                first, second = (math.exp(-float(loss[place])) for loss in losses)
                seen[place] = (first, second, str(label), picture)
    return list(seen.values())


def _compared(row: Row, baseline: str, label: str) -> Thumbnail:
    first, second, name, picture = row
    chances = [f"{100 * chance:.0f} %" for chance in (first, second)]
    words = f"{name or 'image'}: {chances[0]} for {baseline}, {chances[1]} for {label}"
    return Thumbnail(jpeg(picture), words, [name, f"{chances[0]} → {chances[1]}"] if name else [" → ".join(chances)])


def _worst(section: Section) -> list[Strip]:
    """Images of each model under each corruption, those that it classifies correctly without the corruption first."""
    found = []
    for label, repeats in list(section.repeats.items())[:MODELS]:
        first = repeats[0]
        if any(name not in first.values for name in ("example", "example_severity", "example_index")):
            continue
        clean = first.values.get("clean_correct", np.ones(0))
        pictures = []
        for row, corruption in enumerate(first.axes.get("corruption", ())):
            name = str(corruption).replace("_", " ")
            columns = [first.values[each][row] for each in ("example", "example_severity", "example_index")]
            for picture, severity, place in zip(*columns, strict=True):
                if severity > 0:
                    words = f"{name}, severity {severity}, misclassified by {label}"
                    always = place < len(clean) and clean[place] < 0.5
                    lines = [name, f"severity {severity}", *(["clean: also wrong"] if always else [])]
                    pictures.append(Thumbnail(jpeg(picture), f"{words}{' also when clean' if always else ''}", lines))
        if pictures:
            title = f"Images that {label} misclassifies, each at the lowest severity where it is wrong"
            found.append(Strip(title, pictures))
    return found


def jpeg(pixels: np.ndarray) -> str:
    """Pixels (h, w, 3), uint8, as a JPEG in a data URI."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels, dtype=np.uint8)).save(file, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
