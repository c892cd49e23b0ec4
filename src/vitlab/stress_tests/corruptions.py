"""Error under the corruptions of ImageNet-C, by corruption and severity, with mCE.

Shape legend: c corruptions, s severities, n images.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
from torch import Tensor, nn

from vitlab.core.bounds import ImageCount, Length, Seed, Severity
from vitlab.core.measurement import Card, Measurement
from vitlab.core.pooling import derive
from vitlab.corruptions import CORRUPTIONS, CorruptionName
from vitlab.corruptions.apply import corrupt_pixels
from vitlab.corruptions.parameters import ParameterSet, choose_set
from vitlab.stress_tests.shared.mce_baselines import Baseline, BaselineName, choose, resolve
from vitlab.stress_tests.shared.pixel_evaluation import (
    ERRORS,
    POOLING,
    Perturbation,
    PixelBatch,
    accuracies,
    evaluate_perturbations,
    result,
)
from vitlab.stress_tests.shared.worst_images import with_worst_images

CARD = Card(
    title="Error under the 15 corruptions of ImageNet-C",
    paper="Hendrycks and Dietterich, ICLR 2019; mean accuracy as HDVW, mCE as TAPADL",
    cost="1 + corruptions × severities forwards, 76 by default",
    inputs="labelled images",
    passes="several",
    higher_is_better=False,
)

_FULL = 50_000


#: How the values are derived from per-image correctness, in addition to those of every stress test.
_POOLING = {
    **POOLING,
    "error": ("mean_of", "wrong", "correct"),
    "mean_accuracy": ("mean_of", "over_conditions", "correct"),
    "mean_accuracy_error": ("error_of", "over_conditions", "correct"),
    "baseline_error": ("constant",),
    "relative_baseline_error": ("constant",),
    "corruption_weight": ("constant",),
    **{
        f"{name}{end}": (rule, function, *given)
        for name, function, *given in (
            ("ce", "corruption_error", "correct", "baseline_error"),
            ("relative_ce", "relative_corruption_error", "correct", "clean_correct", "relative_baseline_error"),
            ("mce", "mean_corruption_error", "correct", "baseline_error", "corruption_weight"),
            (
                *("relative_mce", "relative_mean_corruption_error", "correct", "clean_correct"),
                *("relative_baseline_error", "corruption_weight"),
            ),
        )
        for end, rule in (("", "mean_of"), ("_error", "error_of"))
    },
}
_ERRORS = {
    **ERRORS,
    "error": "standard_error",
    **{name: f"{name}_error" for name in ("mean_accuracy", "ce", "relative_ce", "mce", "relative_mce")},
}


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    names: CorruptionName | Annotated[Sequence[CorruptionName], Length(distinct=True)] = CORRUPTIONS,
    severities: Severity | Annotated[Sequence[Severity], Length(distinct=True)] = (1, 2, 3, 4, 5),
    seed: Seed = 0,
    baseline: BaselineName | None = None,
    parameters: ParameterSet | None = None,
    images: ImageCount | None = None,
) -> Measurement:
    """Measure the error by corruption and severity, mean accuracy, mCE and relative mCE.

    The corruptions are applied on the fly; the files of the benchmark contain the same corruptions, stored as JPEG.
    Random numbers are keyed by seed, corruption, severity and the index of the image in `batches`.

    Args:
        model: a classifier; its state is restored on exit.
        batches: yields (images, targets), in the same order in each iteration; iterated once per condition.
        names: corruptions, from the 15 and the 4 extra ones.
        severities: severities from 1 to 5.
        seed: any integer.
        baseline: AlexNet's errors: `imagenet`, `cifar10`, `cifar100` or `none`. Default: `imagenet` for 1000 classes
            with the strengths `imagenet`, `cifar10` or `cifar100` for 10 or 100 classes with the strengths `cifar`,
            else `none`.
        parameters: the corruption strengths, `imagenet`, `cifar` or `imagecorruptions`; default by the image size.
        images: number of images, from the start; default all.

    Returns:
        `error`, `accuracy`, `standard_error`, `drop`, `drop_error` (corruption, severity); `ce`, `ce_error`,
        `relative_ce`, `relative_ce_error` (corruption), NaN without a baseline; `mean_accuracy`, over all corruptions
        and severities, `mce`, `relative_mce`, which are NaN unless all 15 corruptions ran at all 5 severities,
        `clean_accuracy`, each with its `…_error` (). They are derived from `correct` (corruption, severity, image),
        `clean_correct` (image), and `baseline_error`, `relative_baseline_error`, `corruption_weight` (corruption).
        For reports, thumbnails `example` (corruption, rank, row, column, channel) uint8 of the images that are wrong at
        most severities, with `example_index` and `example_severity` (corruption, rank).
        Provenance has `partial`, which is True unless all 50,000 images ran under all 15 × 5 conditions. Settings
        contain the baseline and the strengths that were used.
    """
    names = (names,) if isinstance(names, str) else tuple(names)
    severities = tuple(map(int, severities)) if isinstance(severities, Iterable) else (severities,)
    perturbations = [(f"{name} at {s}", _perturbation(name, s, seed, parameters)) for name in names for s in severities]
    outcome = evaluate_perturbations(model, batches, "corruptions", perturbations, images)
    correct = outcome.perturbed.reshape(len(names), len(severities), -1)
    complete = set(CORRUPTIONS) <= set(names) and set(severities) == {1, 2, 3, 4, 5}
    used = choose_set(outcome.size, parameters)
    baseline_name = resolve(baseline, outcome.classes, used)
    stored = {**accuracies(outcome, correct), **_constants(choose(baseline_name), names, severities, complete)}
    values = derive(stored, _POOLING)
    settings = {"names": names, "severities": severities, "seed": seed, "baseline": baseline_name}
    settings |= {"parameters": used, "images": images}
    about = {**outcome.about, "official_images": _FULL, "partial": not complete or outcome.about["images"] != _FULL}
    axes = {"corruption": names, "severity": severities}
    found = result("corruptions", model, values, axes, settings, about, _ERRORS, _POOLING)
    ordered = np.argsort(severities)
    each = [[_perturbation(name, severities[place], seed, parameters) for place in ordered] for name in names]
    return with_worst_images(found, outcome, correct[:, ordered], sorted(severities), each)


def _constants(
    baseline: Baseline | None, names: tuple[str, ...], severities: tuple[int, ...], complete: bool
) -> dict[str, np.ndarray]:
    """Returns, by corruption, the errors of the baseline, these minus its error on clean images, and the weight in mCE.

    The weight is NaN unless all 15 corruptions ran at all 5 severities, and 0 for the extra corruptions.
    """
    missing = float("nan")
    errors = np.array([baseline.error(name, severities) if baseline else missing for name in names])
    clean = baseline.clean if baseline and baseline.clean is not None else missing
    benchmark = np.array([name in CORRUPTIONS for name in names])
    weight = benchmark / len(CORRUPTIONS) if complete else np.full(len(names), missing)
    return {"baseline_error": errors, "relative_baseline_error": errors - clean, "corruption_weight": weight}


def _perturbation(name: str, severity: int, seed: int, parameters: ParameterSet | None) -> Perturbation:
    def perturbation(batch: PixelBatch) -> Tensor:
        pixels = corrupt_pixels(batch.pixels, name, severity, seed=seed, indices=batch.indices, parameters=parameters)
        return pixels.clamp(0, 1)

    return perturbation
