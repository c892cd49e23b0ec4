"""The demo: train, measure, stress and report three small models on embedded data, without a download."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vitlab import runner
from vitlab.core.expressions import parse_call
from vitlab.core.measurement import Measurement
from vitlab.core.out_folder import check_writable
from vitlab.core.statistics import proportion_interval
from vitlab.core.step_cache import ReportProgress, step_cache
from vitlab.progress import Bar
from vitlab.recipes.quick import quick
from vitlab.reporting import report, training_curve
from vitlab.tasks.classification import run as train

#: Of the report. The generated images show five of the 25 classes.
TITLE = "A small ViT: plain, with CB, and with TAP and ADL; five classes, chance 20 %"

#: What is compared: the settings of `quick` for each model.
MODELS: dict[str, dict[str, Any]] = {
    "plain ViT": {},
    "ViT + CB": {"part": "cb"},
    "ViT + TAP + ADL": {"part": "tap", "diversification": 1.0},
}


@dataclass(frozen=True)
class Measured:
    """Instruments or stress tests, the number of images, and the number of disjoint parts they are split into."""

    run: Callable[..., Iterator[Path]]
    names: tuple[str, ...]
    images: int
    repeats: int = 1


_ATTENTION = ("attention_entropy", "attention_distance", "attention_diversity", "attention_stability")
_FEATURES = ("token_overfocus", "feature_fourier", "feature_variance")

#: How each model is measured, in the order of the report.
MEASURED = (
    Measured(runner.measure, (*_ATTENTION, *_FEATURES), 192, 3),
    Measured(runner.measure, ("representation_cka",), 128),
    Measured(runner.measure, ("lesion",), 96),
    Measured(runner.measure, ("calibration(bins=10)",), 512),
    Measured(runner.measure, ("hessian_spectrum(mini_batches=1)",), 16),
    Measured(runner.measure, ("loss_landscape(points=9)",), 64),
    Measured(runner.measure, ("attention_view(lattice=8)",), 2),  # the grid of the models
    Measured(runner.stress, ("corruptions(severities=(1, 3, 5))",), 64),
    Measured(
        runner.stress,
        ("frequency_noise(strength=0.3, frequencies=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0))", "occlusion(grid=8)"),
        96,
    ),
    Measured(runner.stress, ("adversarial(epsilons=(1.0, 4.0))", "shape_texture"), 32),
)

#: The kinds of measurements in the order of the report.
KINDS = ("training", *(parse_call(name)[0] for row in MEASURED for name in row.names))

_TRAINING = 12  # a training takes about as long as this many measurements; for the estimate of the time left


def run(out: Path, epochs: int = 6, images: int = 1280, *, show: bool = True) -> tuple[Path, list[str]]:
    """Train a small ViT plain, with CB, and with TAP and ADL; measure, stress and report them.

    Args:
        out: folder for runs, measurements and the page; a second run with the same folder resumes.
        epochs: of each training.
        images: number of training images.
        show: whether to show progress.

    Returns:
        The path of the page, and three sentences that summarise it.
    """
    check_writable(out)
    measurements: list[Measurement] = []
    pieces = _TRAINING + sum(row.repeats * len(row.names) for row in MEASURED)
    with Bar(len(MODELS) * pieces, show=show) as bar:
        for name, settings in MODELS.items():
            recipe = quick(epochs=epochs, images=images, **settings)
            folder = (out / name.replace(" ", "_").replace("+", "and")).resolve()
            with bar.piece(f"training {name}", _TRAINING) as report_progress, step_cache(None, report_progress):
                train(recipe, folder, log=partial(_report_epoch, report_progress, epochs))
            measurements += measured(folder, name, images // 3, bar)
    page = report(measurements, out / "report.html", title=TITLE)
    return page, sentences(measurements, images // 3)


def measured(folder: Path, name: str, most: int, bar: Bar) -> list[Measurement]:
    """Measure a run as `MEASURED` lists; returns its training curve and the measurements in the order of the report.

    Args:
        folder: of the run.
        name: the display name of the model.
        most: the maximum number of images: the size of the test set.
        bar: shows the progress.
    """
    stored: dict[Path, Measurement] = {}
    for row in MEASURED:
        images = min(row.images, most)
        paths = row.run(
            [f"file/{folder}"], row.names, folder / "measurements",
            images=images, repeats=row.repeats, called=[name], bar=bar,
        )  # fmt: skip
        stored |= {path.resolve(): Measurement.load(path) for path in paths}
    curve = training_curve(folder, stored)
    return sorted([*([curve] if curve else []), *stored.values()], key=lambda each: KINDS.index(each.kind))


def sentences(measurements: Sequence[Measurement], tested: int) -> list[str]:
    """Three sentences: the accuracy of the models, their attention, and what the demo does not show."""
    curves = {m.subject: float(m.values["top1"][-1]) for m in measurements if m.kind == "training"}
    shares = {name: proportion_interval(round(top1 * tested / 100), tested) for name, top1 in curves.items()}
    accuracy = ", ".join(
        f"{name} {100 * share:.1f} % (95 %: {100 * low:.1f} to {100 * high:.1f})"
        for name, (share, low, high) in shares.items()
    )
    entropy, stability = (_means(measurements, kind, "mean") for kind in ("attention_entropy", "attention_stability"))
    attention = "; ".join(f"{name}: {entropy[name]:.2f} nats, {stability[name]:.2f}" for name in entropy)
    return [
        f"Top-1 on {tested} scenes, chance 20 %: {accuracy}.",
        f"Attention in the deep half, entropy and likeness under noise: {attention}.",
        "One seed and a minute of training each: this shows that everything runs; it does not evaluate CB, TAP or ADL.",
    ]


def _report_epoch(report_progress: ReportProgress, epochs: int, row: dict[str, Any]) -> None:
    """Report a finished epoch to the progress bar."""
    report_progress(f"epoch {row['epoch']}", epochs, "done")


def _means(measurements: Sequence[Measurement], kind: str, value: str) -> dict[str, float]:
    """The mean of a value over the deep half of the layers, by subject, over all parts of the images."""
    parts: dict[str, list[float]] = {}
    for measurement in measurements:
        if measurement.kind == kind:
            deep = measurement.values[value][len(measurement.values[value]) // 2 :]
            parts.setdefault(measurement.subject, []).append(float(np.nanmean(deep)))
    return {subject: float(np.mean(values)) for subject, values in parts.items()}
