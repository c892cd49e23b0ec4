"""mIoU of a segmentation model under noise and blur, under the 16 corruptions of Cityscapes-C, or by condition.

Shape legend: c conditions, r runs, K classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, get_args

import numpy as np
from torch import nn

from vitlab.adapters.wrappers import unwrap
from vitlab.core.bounds import ImageCount, Length, Range, Seed, Severity
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.core.statistics import class_accuracy, intersection_over_union, mean_interval
from vitlab.core.step_cache import step
from vitlab.stress_tests.shared.segmentation_evaluation import Counter, counter
from vitlab.stress_tests.shared.segmentation_examples import joined
from vitlab.stress_tests.shared.segmentation_suites import Condition, cityscapes_c, context_broadcasting

CARD = Card(
    title="mIoU of a segmentation model under corruptions",
    paper="CB Table 9 (ADE20K); TAPADL Table 4 (Cityscapes-C, ACDC)",
    cost="1 + conditions × runs forwards: 18 for CB Table 9 in five runs, 73 for Cityscapes-C",
    inputs="image and mask pairs",
    passes="several",
    higher_is_better=True,
)

Suite = Literal["context_broadcasting", "cityscapes_c", "clean", "by_condition"]
Values = dict[str, np.ndarray]
Result = tuple[Values, dict[str, tuple[Any, ...]], int]  # values, labels along axes, number of images

_NAME = "segmentation_corruptions"


def scores(confusion: np.ndarray) -> Values:
    """Returns mIoU, pixel accuracy and the mean accuracy over the classes, from a confusion matrix.

    mIoU = 1/K Σ_k TP_k / (TP_k + FP_k + FN_k), over the classes that occur as label or prediction.

    Args:
        confusion: (K, K) number of pixels with label i and prediction j.

    Returns:
        `miou`, `pixel_accuracy`, `mean_accuracy` (), `class_iou` (K,).

    >>> values = scores(np.array([[1, 1, 0], [0, 2, 0], [0, 0, 0]]))
    >>> {name: float(values[name].round(3)) for name in ("miou", "pixel_accuracy", "mean_accuracy")}
    {'miou': 0.583, 'pixel_accuracy': 0.75, 'mean_accuracy': 0.75}
    """
    class_iou = intersection_over_union(confusion)
    return {
        "miou": np.asarray(np.nanmean(class_iou)),
        "pixel_accuracy": np.asarray(np.trace(confusion) / confusion.sum()),
        "mean_accuracy": np.asarray(np.nanmean(class_accuracy(confusion))),
        "class_iou": class_iou,
    }


def mean_by(names: Sequence[str], values: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the mean of the rows with the same name, in the order of the names.

    >>> mean_by(["a", "a", "b"], np.array([[1.0], [3.0], [5.0]]))
    {'a': array([2.]), 'b': array([5.])}
    """
    return {name: values[[other == name for other in names]].mean(0) for name in dict.fromkeys(names)}


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    suite: Suite = "context_broadcasting",
    severities: Severity | Annotated[Sequence[Severity], Length(distinct=True)] | None = None,
    runs: Annotated[int, Range(1, 1000)] | None = None,
    seed: Seed = 0,
    ignore: Annotated[int, Range(-(2**31), 2**31 - 1)] | None = 255,
    classes: Annotated[Sequence[str], Length(1, 100_000)] | None = None,
    photons: Annotated[int, Range(1, 10_000)] = 255,
    images: ImageCount | None = None,
    pictures: Annotated[int, Range(0, 1000)] = 4,
) -> Measurement:
    """Measure mIoU and pixel accuracy, clean and under each condition, with 95 % intervals over random runs.

    IoU is computed from one confusion matrix over all images, as in the benchmarks. Deterministic conditions (blur,
    brightness, …) run once. Batches are iterated once per condition and run.

    Args:
        model: returns logits (B, K, h, w) at any size; its state is restored on exit.
        batches: yields (images, masks). For `by_condition`, a dict of such batches, as opened by `data.acdc`.
        suite: `context_broadcasting`, CB Table 9; `cityscapes_c`, the 16 corruptions applied to the given images;
            `clean`; or `by_condition`, unmodified images, evaluated separately for each condition.
        severities: severities of `cityscapes_c`; default 1 to 5, for noise 1 to 3.
        runs: number of runs of random corruptions, with seeds seed, seed + 1, …; default 5, as in CB, and 1 for
            `cityscapes_c`.
        seed: any integer.
        ignore: the label of pixels to ignore; None counts all pixels.
        classes: names of the classes; default those of the batches if their number matches, else integers.
        photons: photons at white of CB's shot noise.
        images: number of images, from the start; default all.
        pictures: number of clean images that are stored with labels and predictions, for the report.

    Returns:
        `miou`, `pixel_accuracy`, `mean_accuracy` (over the classes), `drop` (clean minus perturbed mIoU), `random`, and
        `miou_interval`, half the 95 % interval: infinite for one run, 0 for deterministic conditions (condition);
        `class_iou` (condition, class), NaN for classes neither labelled nor predicted; means skip these;
        `miou_of_run` (condition, run); `corruption_miou` (corruption), over its strengths; `group_miou` (group) and
        `mean_miou` (), over corruptions, with `mean_miou_interval`; `clean_miou`, … of the unmodified images. For
        `by_condition`: `miou`, …, `class_iou`, `mean_miou`, and `pooled_miou` (), from one confusion matrix over all
        conditions. `example_image` (example, row, column, channel), `example_truth` and `example_prediction` (example,
        row, column), reduced in size.
    """
    if suite not in get_args(Suite):
        raise unknown("suite", suite, get_args(Suite))
    runs = (5 if suite == "context_broadcasting" else 1) if runs is None else runs
    if runs < 1 or photons < 1 or pictures < 0:
        raise VitlabError(
            f"invalid runs={runs}, photons={photons} or pictures={pictures} for {_NAME}; expected 1 or more runs and "
            "photons, and 0 or more pictures"
        )
    if severities is not None and suite != "cityscapes_c":
        raise VitlabError(f"invalid severities={severities} for suite={suite!r}; only cityscapes_c has severities")
    if isinstance(batches, Mapping) != (suite == "by_condition"):
        given = type(batches).__name__
        raise VitlabError(
            f"invalid batches of type {given} for suite={suite!r}; expected a dict of batches for by_condition only"
        )
    settings: dict[str, Any] = {"suite": suite, "severities": severities, "runs": runs, "seed": seed, "ignore": ignore}
    settings |= {"classes": classes, "photons": photons, "images": images, "pictures": pictures}
    sets = batches if isinstance(batches, Mapping) else {"clean": batches}
    share = -(-pictures // max(1, len(sets)))
    options: dict[str, Any] = {"ignore": ignore, "images": images, "pictures": share}
    counters = {name: counter(model, each, _NAME, **options) for name, each in sets.items()}
    if suite == "by_condition":
        outcome = _by_condition(counters)
    else:
        outcome = _under_conditions(_conditions(suite, severities, photons), counters["clean"], runs, seed)
    return _finish(model, list(sets.values()), *outcome, settings)


def _conditions(suite: Suite, severities: int | Sequence[int] | None, photons: int) -> list[Condition]:
    if suite == "cityscapes_c":
        return cityscapes_c(severities)
    return context_broadcasting(photons) if suite == "context_broadcasting" else []


def _under_conditions(conditions: Sequence[Condition], count: Counter, runs: int, seed: int) -> Result:
    """Evaluate the clean images, then each condition in each of its runs."""
    repeats = [runs if condition.random else 1 for condition in conditions]
    steps = 1 + sum(repeats)
    clean = step("clean", steps, partial(count, None))
    values = {f"clean_{name}": value for name, value in scores(clean["confusion"]).items()} | joined([clean])
    if not conditions:
        return values, {}, int(clean["images"])
    by_condition: list[list[Values]] = []
    for condition, repeat in zip(conditions, repeats, strict=True):
        perturbations = {f"{condition.name}, run {run}": condition.perturbation(seed + run) for run in range(repeat)}
        tables = [step(name, steps, partial(count, perturbation)) for name, perturbation in perturbations.items()]
        by_condition.append([scores(table["confusion"]) for table in tables])
    values |= _over_runs(by_condition)
    values["drop"] = values["clean_miou"] - values["miou"]
    of_run = np.array([[run["miou"] for run in each] * (runs // len(each)) for each in by_condition])
    spread, labels = _spread(conditions, of_run)
    return values | spread, labels, int(clean["images"])


def _over_runs(by_condition: Sequence[Sequence[Values]]) -> Values:
    """Returns means (c, …) over the runs of each condition; NaN for classes that occur in no run."""

    def mean(name: str, each: Sequence[Values]) -> np.ndarray:
        masked: Any = np.ma.masked_invalid(np.stack([run[name] for run in each]))
        return np.ma.filled(masked.mean(0), np.nan)

    return {name: np.stack([mean(name, each) for each in by_condition]) for name in by_condition[0][0]}


def _spread(conditions: Sequence[Condition], of_run: np.ndarray) -> tuple[Values, dict[str, tuple[Any, ...]]]:
    """Returns intervals over runs and means over corruptions and groups, from mIoU (c, r)."""
    random = np.array([condition.random for condition in conditions])
    by_corruption = mean_by([condition.corruption for condition in conditions], of_run)
    group = {condition.corruption: condition.group for condition in conditions}
    by_group = mean_by([group[name] for name in by_corruption], np.stack([*by_corruption.values()]))
    overall = np.mean([*by_corruption.values()], axis=0)
    values = {
        "miou_of_run": of_run,
        "miou_interval": np.array([_half(row, each) for row, each in zip(of_run, random, strict=True)]),
        "random": random,
        "corruption_miou": np.array([row.mean() for row in by_corruption.values()]),
        "group_miou": np.array([row.mean() for row in by_group.values()]),
        "mean_miou": np.asarray(overall.mean()),
        "mean_miou_interval": np.asarray(_half(overall, bool(random.any()))),
    }
    labels = {"condition": tuple(condition.name for condition in conditions), "run": tuple(range(of_run.shape[1]))}
    return values, {**labels, "corruption": tuple(by_corruption), "group": tuple(by_group)}


def _half(runs: np.ndarray, random: bool) -> float:
    """Returns half the 95 % interval; 0 for deterministic conditions."""
    mean, _, high = mean_interval(runs.tolist())
    return high - mean if random else 0.0


def _by_condition(counters: Mapping[str, Counter]) -> Result:
    """Evaluate the unmodified images separately for each condition."""
    if not counters:
        raise VitlabError("by_condition needs at least one condition; expected batches as {'fog': batches, …}")
    tables = [step(name, len(counters), partial(count, None)) for name, count in counters.items()]
    values = _over_runs([[scores(table["confusion"])] for table in tables])
    values |= joined(tables)
    values["mean_miou"] = np.asarray(values["miou"].mean())
    values["pooled_miou"] = scores(np.sum([table["confusion"] for table in tables], axis=0))["miou"]
    return values, {"condition": tuple(counters)}, sum(int(table["images"]) for table in tables)


def _finish(
    model: nn.Module,
    sets: Sequence[Any],
    values: Values,
    labels: Mapping[str, tuple[Any, ...]],
    images: int,
    settings: Mapping[str, Any],
) -> Measurement:
    """Returns the Measurement, with the names of the classes and the axes of each value."""
    number = values["class_iou" if "class_iou" in values else "clean_class_iou"].shape[-1]
    names = settings["classes"] or getattr(sets[0], "classes", ())
    if settings["classes"] and len(names) != number:
        raise VitlabError(f"invalid classes for {_NAME}: {len(names)} names for the {number} classes of the model")
    axes = {**labels, "class": tuple(names) if len(names) == number else tuple(range(number))}
    own = {"class_iou": ("condition", "class"), "clean_class_iou": ("class",), "miou_of_run": ("condition", "run")}
    own |= {"corruption_miou": ("corruption",), "group_miou": ("group",)}
    own |= {"example_image": ("example", "row", "column", "channel")}
    own |= dict.fromkeys(("example_truth", "example_prediction"), ("example", "row", "column"))
    dims = {name: own.get(name, ("condition",)[: np.ndim(value)]) for name, value in values.items()}
    device = str(next((parameter.device for parameter in model.parameters()), "cpu"))
    data = "; ".join(getattr(each, "fingerprint", "") for each in sets)
    partial_run = settings["images"] is not None or settings["severities"] is not None
    about = provenance(device=device, images=images, data=data, partial=partial_run)
    pooling = {name: ("concatenate", "example") for name in values if name.startswith("example_")}
    name = type(unwrap(model)).__name__
    return Measurement(_NAME, name, values, dims, axes, dict(settings), about, pooling=pooling)
