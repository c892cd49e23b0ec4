"""The demo: the whole story in small, on embedded data, with no download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from vitlab import zoo
from vitlab.core.measurement import Measurement
from vitlab.core.provenance import provenance
from vitlab.core.statistics import proportion_interval
from vitlab.core.store import Run
from vitlab.laboratory import batches_for, measure_in_one_pass
from vitlab.recipes.quick import quick
from vitlab.reporting import report
from vitlab.tasks.classification import run as train

INSTRUMENTS = ("attention_entropy", "attention_distance", "attention_diversity", "feature_fourier", "feature_variance")
PARTS = {"plain ViT": "", "ViT + Context Broadcasting": "cb"}


def run(out: Path, epochs: int = 8, images: int = 1536) -> Path:
    """Train a small ViT without and with CB, look inside both, and write `report.html`.

    Args:
        out: folder for runs, measurements and the page; run again, it goes on where it stopped.
        epochs: of each training.
        images: how many scenes to train on.

    Returns:
        The path of the page.
    """
    console = Console()
    measurements: list[Measurement] = []
    for name, part in PARTS.items():
        recipe = quick(part=part, epochs=epochs, images=images)
        folder = out / name.replace(" ", "_").replace("+", "and")
        console.print(f"[bold]{name}[/bold]: training on {images} scenes for {epochs} epochs, then looking inside")
        train(recipe, folder, show=True)
        model = zoo.load(f"file/{folder}/model.safetensors")
        measurements.append(training_curve(name, Run(folder)))
        with console.status("measuring"):
            measurements += measure_in_one_pass(model, name, INSTRUMENTS, batches_for(model, recipe.data, 128))
    for measurement in measurements:
        measurement.save(out / "measurements" / f"{measurement.kind}-{measurement.subject.replace(' ', '_')}")
    page = report(measurements, out / "report.html", title="A small ViT with and without Context Broadcasting")
    for sentence in sentences(measurements, images // 3):
        console.print(f"- {sentence}", highlight=False)
    console.print(f"The report: {page}", highlight=False, soft_wrap=True)
    return page


def training_curve(subject: str, run: Run) -> Measurement:
    """The metrics of a run as a Measurement."""
    rows = [row for row in run.metrics() if "top1" in row]
    values = {key: np.array([row[key] for row in rows]) for key in ("train_loss", "loss", "top1")}
    axes = {"epoch": tuple(row["epoch"] for row in rows)}
    return Measurement("training", subject, values, dict.fromkeys(values, ("epoch",)), axes, {}, provenance())


def sentences(measurements: Sequence[Measurement], tested: int) -> list[str]:
    """What was seen, in words, with how sure it is."""
    said = []
    for measurement in measurements:
        if measurement.kind == "training":
            top1 = float(measurement.values["top1"][-1])
            _, low, high = proportion_interval(round(top1 * tested / 100), tested)
            said.append(
                f"{measurement.subject}: top-1 {top1:.1f} % (95 %: {100 * low:.1f} to {100 * high:.1f}), chance 20 %"
            )
    deep = {
        m.subject: m.values["mean"][len(m.values["mean"]) // 2 :].mean()
        for m in measurements
        if m.kind == "attention_entropy"
    }
    said.append(
        "deep-layer attention entropy: " + ", ".join(f"{name} {value:.2f}" for name, value in deep.items()) + " nats"
    )
    said.append("one seed and a minute of training: this shows that everything runs, not what CB is worth")
    return said
