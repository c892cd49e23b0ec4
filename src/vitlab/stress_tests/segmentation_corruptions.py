"""mIoU of a segmentation model under noise and blur, under the 16 corruptions of Cityscapes-C, or by condition.

The pixel counts of each class are stored, and all scores are computed from them, so that parts of the images
(`--repeats`) give the scores of all images.

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
from vitlab.core.pixel_counts import COUNTS, count_pixels
from vitlab.core.pooling import Rule, derive
from vitlab.core.provenance import provenance
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
#: Stored values, the rules of pooling, labels along axes, and the number of images.
Result = tuple[Values, Mapping[str, Rule], dict[str, tuple[Any, ...]], int]

_NAME = "segmentation_corruptions"


_CLEAN: dict[str, Rule] = {
    "clean_pixels": ("sum",),
    "clean_miou": ("mean_iou", "clean_pixels"),
    "clean_pixel_accuracy": ("pixel_accuracy", "clean_pixels"),
    "clean_mean_accuracy": ("mean_class_accuracy", "clean_pixels"),
    "clean_class_iou": ("class_iou", "clean_pixels"),
}
_BY_CONDITION: dict[str, Rule] = {
    "pixels": ("sum",),
    "miou_of_run": ("mean_iou", "pixels"),
    "miou": ("over_runs", "miou_of_run"),
    "pixel_accuracy": ("pixel_accuracy_over_runs", "pixels"),
    "mean_accuracy": ("mean_class_accuracy_over_runs", "pixels"),
    "class_iou": ("class_iou_over_runs", "pixels"),
}
_CORRUPTED: dict[str, Rule] = {
    **_BY_CONDITION,
    "corruption_of": ("constant",),
    "group_of": ("constant",),
    "random": ("constant",),
    "drop": ("difference", "clean_miou", "miou"),
    "miou_interval": ("run_interval", "miou_of_run", "random"),
    "corruption_miou": ("mean_by", "miou", "corruption_of"),
    "group_miou": ("mean_by", "corruption_miou", "group_of"),
    "mean_miou": ("average", "corruption_miou"),
    "mean_miou_interval": ("mean_run_interval", "miou_of_run", "corruption_of", "random"),
}
_SETS: dict[str, Rule] = {
    **_BY_CONDITION,
    "mean_miou": ("average", "miou"),
    "pooled_miou": ("mean_iou_of_all", "pixels"),
}


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
        batches: yields (images, masks). For `by_condition`, a dict of such batches by condition: `{'fog': …}`.
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
        conditions. `pixels` (condition, run, class, count) and `clean_pixels` (class, count): the number of pixels of
        a class that are correct, labelled and predicted, from which all scores are computed (`core/pixel_counts.py`).
        `corruption_of` (condition) and `group_of` (corruption): places along the axes `corruption` and `group`.
        `example_image` (example, row, column, channel), `example_truth` and `example_prediction` (example, row,
        column), reduced in size.
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
    values = {"clean_pixels": count_pixels(clean["confusion"])} | joined([clean])
    if not conditions:
        return values, _CLEAN, {}, int(clean["images"])
    counts = []
    for condition, repeat in zip(conditions, repeats, strict=True):
        perturbations = {f"{condition.name}, run {run}": condition.perturbation(seed + run) for run in range(repeat)}
        tables = [step(name, steps, partial(count, perturbation)) for name, perturbation in perturbations.items()]
        counts.append([count_pixels(table["confusion"]) for table in tables] * (runs // repeat))
    groups = {condition.corruption: condition.group for condition in conditions}
    values["pixels"] = np.array(counts)
    values["random"] = np.array([condition.random for condition in conditions])
    values["corruption_of"], corruptions = _places([condition.corruption for condition in conditions])
    values["group_of"], names = _places([groups[name] for name in corruptions])
    labels = {"condition": tuple(condition.name for condition in conditions), "run": tuple(range(runs))}
    return values, _CLEAN | _CORRUPTED, {**labels, "corruption": corruptions, "group": names}, int(clean["images"])


def _places(names: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns the place of each name among the different names, and these in order."""
    different = tuple(dict.fromkeys(names))
    return np.array([different.index(name) for name in names]), different


def _by_condition(counters: Mapping[str, Counter]) -> Result:
    """Evaluate the unmodified images separately for each condition."""
    if not counters:
        raise VitlabError("by_condition needs at least one condition; expected batches as {'fog': batches, …}")
    tables = [step(name, len(counters), partial(count, None)) for name, count in counters.items()]
    values = {"pixels": np.array([[count_pixels(table["confusion"])] for table in tables])} | joined(tables)
    labels = {"condition": tuple(counters), "run": (0,)}
    return values, _SETS, labels, sum(int(table["images"]) for table in tables)


def _finish(
    model: nn.Module,
    sets: Sequence[Any],
    stored: Values,
    rules: Mapping[str, Rule],
    labels: Mapping[str, tuple[Any, ...]],
    images: int,
    settings: Mapping[str, Any],
) -> Measurement:
    """Returns the Measurement, with the names of the classes and the axes of each value."""
    pooling = {**rules, **{name: ("concatenate", "example") for name in stored if name.startswith("example_")}}
    values = derive(stored, pooling)
    number = values["pixels" if "pixels" in values else "clean_pixels"].shape[-2]
    names = settings["classes"] or getattr(sets[0], "classes", ())
    if settings["classes"] and len(names) != number:
        raise VitlabError(f"invalid classes for {_NAME}: {len(names)} names for the {number} classes of the model")
    axes = {**labels, "class": tuple(names) if len(names) == number else tuple(range(number)), "count": COUNTS}
    dims = {name: _DIMS.get(name, ("condition",)[: np.ndim(value)]) for name, value in values.items()}
    device = str(next((parameter.device for parameter in model.parameters()), "cpu"))
    data = "; ".join(getattr(each, "fingerprint", "") for each in sets)
    partial_run = settings["images"] is not None or settings["severities"] is not None
    about = provenance(device=device, images=images, data=data, partial=partial_run)
    name = type(unwrap(model)).__name__
    return Measurement(_NAME, name, values, dims, axes, dict(settings), about, pooling=pooling)


#: The axes of values that are neither numbers nor by condition.
_DIMS: dict[str, tuple[str, ...]] = {
    "clean_pixels": ("class", "count"),
    "pixels": ("condition", "run", "class", "count"),
    "class_iou": ("condition", "class"),
    "clean_class_iou": ("class",),
    "miou_of_run": ("condition", "run"),
    "corruption_miou": ("corruption",),
    "group_miou": ("group",),
    "group_of": ("corruption",),
    "example_image": ("example", "row", "column", "channel"),
    "example_truth": ("example", "row", "column"),
    "example_prediction": ("example", "row", "column"),
}
