"""Numbers of feature maps that the claims of HDVW compare: frequencies, variance, similarity and lesions."""

from __future__ import annotations

import re

import numpy as np

from vitlab.core.experiment import values_of
from vitlab.core.measurement import Measurement
from vitlab.experiments.how_vits_work._effects import Reading

__all__ = [
    "MEAN_SIMILARITY",
    "STAGE_DROP",
    "amplitude",
    "depth_trend",
    "lesion",
    "net_amplitude",
    "stage_of",
    "stage_peak",
    "variance",
]

#: The unit of differences of the Δ log amplitude.
_AMPLITUDE = "of log amplitude"


def stage_of(name: str) -> int:
    """The stage of a block or step from its name; 0 for models without stages.

    >>> stage_of("layers.2.blocks.1 MSA"), stage_of("stages.3.0"), stage_of("layer1.0 Conv"), stage_of("blocks.7 MLP")
    (2, 3, 1, 0)
    """
    numbers = re.findall(r"\d+", name)
    return int(numbers[0]) if len(numbers) > 1 else 0


def _steps(found: Measurement, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """The stages and changes of all steps of a kind, in the order of the forward."""
    names = [str(name) for name in found.axes["step"]]
    chosen = [i for i, name in enumerate(names) if name.rpartition(" ")[2] == unit]
    return np.array([stage_of(names[i]) for i in chosen]), np.asarray(found.values["change"], dtype=float)[chosen]


def _mean(values: np.ndarray) -> float:
    """The mean without NaN; NaN if nothing is left."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


def _part_of_depth(changes: np.ndarray, part: str) -> np.ndarray:
    """All steps, the first quarter of them (`early`), or the others (`late`)."""
    quarter = max(1, len(changes) // 4)
    return {"all": changes, "early": changes[:quarter], "late": changes[quarter:]}[part]


def amplitude(unit: str, part: str = "all") -> Reading:
    """The mean change of the Δ log amplitude at the highest frequency in the MSAs, MLPs or Convs.

    Args:
        unit: `MSA`, `MLP` or `Conv`.
        part: `all`, the first quarter of the units (`early`) or the others (`late`); the quarter is our choice.
    """
    name = f"change of the Δ log amplitude in {part} {unit}s"
    return Reading(
        name, ("feature_fourier",), lambda found: _mean(_part_of_depth(_steps(found, unit)[1], part)), _AMPLITUDE
    )


def _net_amplitude(found: Measurement) -> float:
    """From the first to the last place but one: HDVW leaves the last latent out of Fig. 2a."""
    high = np.asarray(found.values["high"], dtype=float)
    high = high[np.isfinite(high)]
    return float(high[-2] - high[0]) if len(high) > 2 else float("nan")


def net_amplitude() -> Reading:
    """The Δ log amplitude at the highest frequency, last place but one minus first place."""
    return Reading("Δ log amplitude, deep minus shallow", ("feature_fourier",), _net_amplitude, _AMPLITUDE)


def variance(
    unit: str, stages: tuple[int, ...] | None = None, without: int | None = None, last: bool = False
) -> Reading:
    """The mean change of the feature map variance in the MSAs, MLPs or Convs, relative to the mean variance.

    Args:
        unit: `MSA`, `MLP` or `Conv`; the first Conv block of a later stage subsamples and is left out.
        stages: only these stages, counted from 1.
        without: all stages but this one.
        last: only the last unit of each stage.
    """

    def value(found: Measurement) -> float:
        stage, change = _steps(found, unit)
        number = 1 + np.unique(stage, return_inverse=True)[1]
        keep = np.ones(len(change), dtype=bool)
        if unit == "Conv":
            keep[1:] &= number[1:] == number[:-1]  # the first block of a later stage subsamples
        if stages is not None:
            keep &= np.isin(number, stages)
        if without is not None:
            keep &= number != without
        if last:
            keep &= np.append(number[1:] != number[:-1], True) if len(number) else keep
        return _mean(change[keep]) / float(np.mean(found.values["variance"]))

    place = f" of stages {stages}" if stages else f" outside stage {without}" if without else ""
    end = " at the end of stages" if last else ""
    return Reading(f"relative change of variance in {unit}s{place}{end}", ("feature_variance",), value)


def depth_trend() -> Reading:
    """The slope of the log variance over the places of the stream: positive if variance accumulates."""

    def value(found: Measurement) -> float:
        logs = np.log(np.maximum(np.asarray(found.values["variance"], dtype=float), 1e-300))
        return float(np.polyfit(np.arange(len(logs)), logs, 1)[0])

    return Reading("slope of the log variance with depth", ("feature_variance",), value)


def stage_peak() -> Reading:
    """The log variance at the end of a stage minus the mean of the other places of the stage, averaged over stages."""

    def value(found: Measurement) -> float:
        logs = np.log(np.maximum(np.asarray(found.values["variance"], dtype=float), 1e-300))
        stage = np.array([stage_of(str(name)) for name in found.axes["place"]])
        inside = [logs[stage == each] for each in np.unique(stage)]
        return _mean(np.array([logs[-1] - logs[:-1].mean() for logs in inside if len(logs) > 1]))

    return Reading("log variance at the end of stages", ("feature_variance",), value)


def _stage_drop(found: Measurement) -> float:
    """CKA of neighbouring blocks of one stage minus that of neighbours on both sides of a stage boundary."""
    stage = np.array([stage_of(str(name)) for name in found.axes["layer"]])
    neighbours = np.diagonal(values_of(found, "cka"), 1)
    same = stage[1:] == stage[:-1]
    return _mean(neighbours[same]) - _mean(neighbours[~same])


STAGE_DROP = Reading("drop of CKA at stage boundaries", ("representation_cka",), _stage_drop)
MEAN_SIMILARITY = Reading(
    "mean CKA of different blocks",
    ("representation_cka",),
    lambda found: float(values_of(found, "cka")[np.triu_indices(len(found.axes["layer"]), 1)].mean()),
)


def lesion(unit: str, place: str, than: str) -> Reading:
    """The mean loss of accuracy without one unit at some places minus that at others, in points.

    Args:
        unit: `MSA`, `MLP` or `Conv`.
        place, than: units at the `start` or `end` of each stage, or in the `first` or `last` stage of the model.
    """

    def value(found: Measurement) -> float:
        names = [str(name) for name in found.axes["unit"]]
        chosen = [i for i, name in enumerate(names) if name.rpartition(" ")[2] == unit]
        loss = -100 * np.asarray(found.values["change"], dtype=float)[chosen]
        stage = np.asarray(found.values["stage"])[chosen]
        if not len(stage):
            return float("nan")
        begins = np.append(True, stage[1:] != stage[:-1])
        ends = np.append(stage[1:] != stage[:-1], True)
        places = {"start": begins, "end": ends, "first": stage == stage[0], "last": stage == stage[-1]}
        return _mean(loss[places[place]]) - _mean(loss[places[than]])

    return Reading(f"accuracy lost without a {unit}, {place} minus {than}", ("lesion",), value, "points")
