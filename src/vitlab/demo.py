"""The demo: the whole story in small, on embedded data, with no download."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from vitlab import zoo
from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.provenance import provenance
from vitlab.core.recipe import Recipe
from vitlab.core.statistics import proportion_interval, share_error
from vitlab.core.step_cache import ReportProgress, step_cache
from vitlab.core.store import Run
from vitlab.identity import identify, signed
from vitlab.inputs import parts_for
from vitlab.instruments import measure
from vitlab.progress import Bar
from vitlab.recipes.quick import quick
from vitlab.reporting import report
from vitlab.runner import augmentation
from vitlab.stress_tests import stress
from vitlab.tasks.classification import run as train

#: What is compared: the settings of `quick` for each model.
MODELS: dict[str, dict[str, Any]] = {
    "plain ViT": {},
    "ViT + CB": {"part": "cb"},
    "ViT + TAP + ADL": {"part": "tap", "diversification": 1.0},
}

#: How each model is measured: the settings, the number of images, and into how many parts they are cut.
MEASURED: dict[str, tuple[dict[str, Any], int, int]] = {
    "attention_entropy": ({}, 192, 3),
    "attention_distance": ({}, 192, 3),
    "attention_diversity": ({}, 192, 3),
    "attention_stability": ({}, 192, 3),
    "token_overfocus": ({}, 192, 3),
    "feature_fourier": ({}, 192, 3),
    "feature_variance": ({}, 192, 3),
    "representation_cka": ({}, 128, 1),
    "lesion": ({}, 96, 1),
    "calibration": ({"bins": 10}, 512, 1),
    "hessian_spectrum": ({"mini_batches": 1}, 16, 1),
    "loss_landscape": ({"points": 9}, 64, 1),
    "attention_view": ({}, 2, 1),
    "corruptions": ({"severities": (1, 3, 5)}, 64, 1),
    "frequency_noise": ({"strength": 0.3, "frequencies": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)}, 96, 1),
    "adversarial": ({"epsilons": (1.0, 4.0)}, 32, 1),
    "occlusion": ({"grid": 8}, 96, 1),
    "shape_texture": ({}, 0, 1),
}
STRESS = ("corruptions", "frequency_noise", "adversarial", "occlusion", "shape_texture")
_TRAINING = 12  # pieces of measuring that a training takes about as long as, for the time left


def run(out: Path, epochs: int = 6, images: int = 1280, *, show: bool = True) -> tuple[Path, list[str]]:
    """Train a small ViT plain, with CB, and with TAP and ADL; measure, stress and report them.

    Args:
        out: folder for runs, measurements and the page; run again, it goes on where it stopped.
        epochs: of each training.
        images: how many scenes to train on.
        show: whether to show progress.

    Returns:
        The path of the page, and the three sentences that matter.
    """
    found: list[Measurement] = []
    with Bar(len(MODELS) * (_TRAINING + len(MEASURED)), show=show) as bar:
        for name, settings in MODELS.items():
            recipe = quick(epochs=epochs, images=images, **settings)
            folder = out / name.replace(" ", "_").replace("+", "and")
            with bar.piece(f"training {name}", _TRAINING) as report_progress, step_cache(None, report_progress):
                train(recipe, folder, log=partial(_told, report_progress, epochs))
            model = zoo.load(f"file/{folder}/model.safetensors")
            curve = training_curve(name, Run(folder), recipe.data)
            found.append(signed(curve, identify(model, name)))
            found[-1].save(folder / "measurements" / "training")
            for kind in MEASURED:
                with (
                    bar.piece(f"{kind} of {name}") as report_progress,
                    step_cache(folder / "steps" / kind, report_progress),
                ):
                    found += measured(kind, model, name, recipe, images // 3, folder / "measurements")
    page = report(found, out / "report.html", title="A small ViT: plain, with CB, and with TAP and ADL")
    return page, sentences(found, images // 3)


def measured(kind: str, model: nn.Module, subject: str, recipe: Recipe, most: int, folder: Path) -> list[Measurement]:
    """The measurements of one kind, one for each part of the images; those that are stored are not made again."""
    settings, images, count = MEASURED[kind]
    stems = [folder / f"{kind}.part{part}of{count}" for part in range(1, count + 1)]
    try:
        return [Measurement.load(stem) for stem in stems]
    except VitlabError:
        pass  # not all are there yet
    use: Callable[..., Measurement] = stress if kind in STRESS else measure
    augmented = kind not in STRESS and "augmented" in plugins.card(plugins.instruments()[kind]).get("needs", ())
    how: dict[str, Any] = {"augmentation": augmentation(None, recipe), "split": "train"} if augmented else {}
    parts = parts_for(model, recipe.data, min(images, most), count, batch_size=64, **how) if images else [None]
    for index, (stem, part) in enumerate(zip(stems, parts, strict=True)):
        made = use(kind, model, part, name=subject, **settings)
        replace(made, provenance={**made.provenance, "part": [index + 1, count]}).save(stem)
    return [Measurement.load(stem) for stem in stems]


def training_curve(subject: str, run: Run, data: str) -> Measurement:
    """The metrics of a run as a Measurement."""
    rows = [row for row in run.metrics() if "top1" in row]
    values = {key: np.array([row[key] for row in rows]) for key in ("train_loss", "loss", "top1", "top5")}
    doubts = [100 * share_error(row["top1"] / 100, row.get("test_images", np.nan)) for row in rows]
    values["top1_error"] = np.array(doubts)
    axes, dims = {"epoch": tuple(row["epoch"] for row in rows)}, dict.fromkeys(values, ("epoch",))
    errors = {"top1": "top1_error"}
    return Measurement("training", subject, values, dims, axes, {}, provenance(data=data), errors)


def sentences(found: Sequence[Measurement], tested: int) -> list[str]:
    """The three that matter: how well the models do, what their attention does, and how much of it to believe."""
    curves = {m.subject: float(m.values["top1"][-1]) for m in found if m.kind == "training"}
    shares = {name: proportion_interval(round(top1 * tested / 100), tested) for name, top1 in curves.items()}
    accuracy = ", ".join(
        f"{name} {100 * share:.1f} % (95 %: {100 * low:.1f} to {100 * high:.1f})"
        for name, (share, low, high) in shares.items()
    )
    entropy, stability = (_means(found, kind, "mean") for kind in ("attention_entropy", "attention_stability"))
    attention = "; ".join(f"{name}: {entropy[name]:.2f} nats, {stability[name]:.2f}" for name in entropy)
    return [
        f"Top-1 on {tested} scenes, chance 20 %: {accuracy}.",
        f"Attention in the deep half, entropy and likeness under noise: {attention}.",
        "One seed and a minute of training each: this shows that everything runs, not what CB, TAP or ADL are worth.",
    ]


def _told(report_progress: ReportProgress, epochs: int, row: dict[str, Any]) -> None:
    """An epoch is over: one step of the bar."""
    report_progress(f"epoch {row['epoch']}", epochs, "done")


def _means(found: Sequence[Measurement], kind: str, value: str) -> dict[str, float]:
    """The mean of a value over the deep half of the layers, by subject, over all parts of the images."""
    parts: dict[str, list[float]] = {}
    for measurement in found:
        if measurement.kind == kind:
            deep = measurement.values[value][len(measurement.values[value]) // 2 :]
            parts.setdefault(measurement.subject, []).append(float(np.nanmean(deep)))
    return {subject: float(np.mean(values)) for subject, values in parts.items()}
