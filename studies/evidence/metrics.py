"""The numbers that the tables compare: one number per metric and trained network, taken from a run's JSON file."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["BY_LAYER", "METRICS", "Metric", "layers_of", "values_of"]

Run = Mapping[str, Any]
#: Values by layer that are kept as a list: instrument and value.
BY_LAYER: Mapping[str, tuple[str, str]] = {
    "entropy": ("attention_entropy", "mean"),
    "lambda_ratio": ("broadcast_scale", "ratio"),
    "lambda_mean": ("broadcast_scale", "mean"),
    "lambda_absolute": ("broadcast_scale", "mean_absolute"),
}


@dataclass(frozen=True)
class Metric:
    """A number of a trained network.

    Args:
        name: its key in the data file.
        title: for tables.
        unit: of the number; empty if it has none.
        digits: after the decimal point.
        kind: the measurement in a run's file; empty for the evaluation in training.
        made_by: the call that measures it, and what is done with the result.
        value: takes it from a run; None where it was not measured.
    """

    name: str
    title: str
    unit: str
    digits: int
    kind: str
    made_by: str
    value: Callable[[Run], float | None]


def values_of(run: Run) -> dict[str, float]:
    """All metrics of a run that were measured.

    >>> values_of({"top1": 62.5, "measured": {}})
    {'top1': 62.5}
    """
    found = {metric.name: metric.value(run) for metric in METRICS}
    return {name: float(f"{value:.7g}") for name, value in found.items() if value is not None}


def layers_of(run: Run) -> dict[str, list[float]]:
    """Values by layer, means over heads, of what was measured."""
    found = {name: _by_layer(run, instrument, value) for name, (instrument, value) in BY_LAYER.items()}
    return {name: [float(f"{value:.5g}") for value in values] for name, values in found.items() if values}


def _by_layer(run: Run, instrument: str, value: str) -> list[float]:
    """One number for each layer, the mean over heads; empty where a value is missing."""
    rows = run["measured"].get(instrument, {}).get(value) or []
    means = [_mean(row if isinstance(row, list) else [row]) for row in rows]
    return [] if None in means else [mean for mean in means if mean is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _over_layers(instrument: str, value: str, share: float = 1.0) -> Callable[[Run], float | None]:
    """The mean over the last `share` of the layers, and over heads."""

    def found(run: Run) -> float | None:
        layers = _by_layer(run, instrument, value)
        return _mean(layers[len(layers) - round(share * len(layers)) :])

    return found


def _number(instrument: str, value: str, factor: float = 1.0) -> Callable[[Run], float | None]:
    def found(run: Run) -> float | None:
        number = run["measured"].get(instrument, {}).get(value)
        return None if number is None else factor * number

    return found


def _corruption_error(run: Run) -> float | None:
    accuracy = run["measured"].get("corruptions", {}).get("accuracy") or []
    mean = _mean([value for row in accuracy for value in row])
    return None if mean is None else 100 * (1 - mean)


def _under(instrument: str, axis: str, label: str) -> Callable[[Run], float | None]:
    """Accuracy in per cent at one label of the first axis; the first entry of a second axis."""

    def found(run: Run) -> float | None:
        measured = run["measured"].get(instrument)
        if measured is None or label not in measured["axes"][axis]:
            return None
        value = measured["accuracy"][measured["axes"][axis].index(label)]
        return 100 * float(value[0] if isinstance(value, list) else value)

    return found


METRICS: tuple[Metric, ...] = (
    Metric(
        "top1",
        "Top-1 accuracy",
        "%",
        2,
        "",
        "The evaluation after the last epoch, all test images",
        lambda run: run["top1"],
    ),
    Metric(
        "nll",
        "Negative log-likelihood",
        "nats",
        4,
        "calibration",
        '`vitlab.measure("calibration", …)`',
        _number("calibration", "nll"),
    ),
    Metric(
        "ece",
        "Expected calibration error",
        "points",
        2,
        "calibration",
        '`vitlab.measure("calibration", …)`, 10 bins, × 100',
        _number("calibration", "ece", 100.0),
    ),
    Metric(
        "entropy_deep",
        "Attention entropy, deep half of the layers",
        "nats",
        4,
        "attention_entropy",
        '`vitlab.measure("attention_entropy", …)`, mean over rows, heads and layers 7 to 12; at most ln 65 = 4.174',
        _over_layers("attention_entropy", "mean", 0.5),
    ),
    Metric(
        "class_entropy_deep",
        "Attention entropy of the class token, deep half of the layers",
        "nats",
        4,
        "attention_entropy",
        '`vitlab.measure("attention_entropy", …)`, `class_row`, mean over heads and layers 7 to 12',
        _over_layers("attention_entropy", "class_row", 0.5),
    ),
    Metric(
        "corruption_error",
        "Corruption error",
        "%",
        2,
        "corruptions",
        '`vitlab.stress("corruptions", …)`, 100 − mean accuracy over 15 corruptions × 5 severities',
        _corruption_error,
    ),
    Metric(
        "mce",
        "Mean corruption error (mCE)",
        "%",
        2,
        "corruptions",
        '`vitlab.stress("corruptions", …)`, relative to AlexNet on CIFAR-100-C, × 100',
        _number("corruptions", "mce", 100.0),
    ),
    Metric(
        "stability",
        "Attention stability",
        "",
        4,
        "attention_stability",
        '`vitlab.measure("attention_stability", …)`, cosine of clean and noisy maps, all layers (Gaussian noise at 3)',
        _number("attention_stability", "overall"),
    ),
    Metric(
        "head_similarity",
        "Head similarity",
        "",
        4,
        "attention_diversity",
        '`vitlab.measure("attention_diversity", …)`, mean over pairs of heads and all layers; undefined with one head',
        _over_layers("attention_diversity", "head_similarity"),
    ),
    Metric(
        "overfocus",
        "Token overfocus",
        "",
        4,
        "token_overfocus",
        '`vitlab.measure("token_overfocus", …)`, Gini of received attention, heads averaged, mean over layers',
        _over_layers("token_overfocus", "gini_of_mean"),
    ),
    Metric(
        "row_similarity",
        "Row similarity that ADL penalises",
        "",
        4,
        "diversified_rows",
        '`vitlab.measure("attention_diversity", …, tau=2.0, heads="mean")`, mean over layers',
        _over_layers("diversified_rows", "row_similarity"),
    ),
    Metric(
        "occlusion",
        "Accuracy with the centre masked",
        "%",
        2,
        "occlusion",
        '`vitlab.stress("occlusion", …)`, half of each side, a quarter of the image, set to zero',
        _under("occlusion", "mask", "centre 0.5"),
    ),
    Metric(
        "occlusion_patches",
        "Accuracy with half of the patches masked",
        "%",
        2,
        "occlusion",
        '`vitlab.stress("occlusion", …)`, random patches set to zero',
        _under("occlusion", "mask", "patches 0.5"),
    ),
    Metric(
        "fgsm",
        "Accuracy under FGSM",
        "%",
        2,
        "adversarial",
        '`vitlab.stress("adversarial", …)`, ε = 1/255',
        _under("adversarial", "attack", "fgsm"),
    ),
    Metric(
        "pgd",
        "Accuracy under PGD",
        "%",
        2,
        "adversarial",
        '`vitlab.stress("adversarial", …)`, ε = 1/255, 10 steps',
        _under("adversarial", "attack", "pgd"),
    ),
)
