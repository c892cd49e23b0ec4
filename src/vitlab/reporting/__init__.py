"""Write measurements as one self-contained HTML page. Imports `core` only, and no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.core.annotations import shown
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import UNREADABLE, Measurement
from vitlab.core.statistics import share_error
from vitlab.core.store import Run, read_about, write_atomically
from vitlab.core.user_path import user_path

__all__ = ["read", "report"]

#: The metrics of a training run that are drawn.
_METRICS = (
    *("train_loss", "loss", "top1", "top5", "miou", "pixel_accuracy", "accuracy"),
    *("box_ap", "box_ap50", "mask_ap", "mask_ap50", "lr"),
)


def report(
    measurements: Iterable[Measurement], path: str | Path = "report.html", *, title: str = "vitlab report"
) -> Path:
    """Write a self-contained HTML report: no network access, one copy of plotly, every string escaped.

    Args:
        measurements: the measurements to show; the first model is the baseline. Repeats on disjoint parts of the images
            are pooled and other repeats are averaged. Measurements of different weights are never averaged.
        path: the file to write.
        title: the heading of the page.

    Returns:
        The path of the written file.
    """
    from vitlab.reporting.page import render

    given = list(measurements) if isinstance(measurements, Iterable) else [measurements]
    if not given:
        raise VitlabError("nothing to report: no measurements were given; expected at least one")
    for each in given:
        if not isinstance(each, Measurement):
            raise VitlabError(f"report(measurements=[{shown(each)}]): expected measurements, see `Measurement.load`")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(render(given, title).encode())
    return path


def read(paths: Sequence[str | Path]) -> list[Measurement]:
    """Read all measurements in the given folders and files, each file once.

    Measurements of a folder are sorted by time, so that the model measured first is the baseline. The metrics of
    training runs among the folders follow, unless a run already holds a measurement of its training. If files cannot be
    read, one error lists all of them.
    """
    for path in map(Path, paths):
        if not path.exists() and not path.with_name(f"{path.name}.json").exists():
            raise VitlabError(f"no such file or folder: {path}")
    files = [file for path in map(Path, paths) for file in _measurement_files(path)]
    runs = list(dict.fromkeys(run.resolve() for path in map(Path, paths) for run in _runs(path)))
    if not files and not runs:
        raise VitlabError(f"no measurements in {', '.join(map(str, paths))}; create them with `vitlab measure`")
    loaded: dict[Path, Measurement] = {}
    damaged = []
    for file in files:
        try:
            loaded.setdefault(file.resolve(), Measurement.load(file))
        except VitlabError as error:
            damaged.append(str(error))
    if damaged:
        raise VitlabError(
            f"{len(damaged)} of {len(files)} files cannot be read: {'; '.join(damaged)}; remove or replace them"
        )
    for run in runs:
        name = _model_of(run, loaded)
        loaded = {file: replace(m, subject=name) if _is_file_of(run, m.subject) else m for file, m in loaded.items()}
    curves = [training_curve(run, loaded) for run in runs]
    measurements = [*loaded.values(), *(curve for curve in curves if curve is not None)]
    if not measurements:
        raise VitlabError(
            f"no measurements and no epochs in {', '.join(map(str, paths))}; create them with `vitlab measure`"
        )
    return measurements


def training_curve(run: Path, loaded: Mapping[Path, Measurement]) -> Measurement | None:
    """The metrics of a run folder by epoch; None if it has no metrics or already holds a measurement of its training.

    Args:
        run: the run folder.
        loaded: measurements by file. Measurements of the final weights of the run identify its model.
    """
    rows = {row["epoch"]: row for row in Run(run).epochs()}
    names = [name for name in _METRICS if any(name in row for row in rows.values())]
    if not names or any(m.kind == "training" and run in file.parents for file, m in loaded.items()):
        return None
    values = {name: np.array([_number(row.get(name)) for row in rows.values()]) for name in names}
    name = _model_of(run, loaded)
    counts = [_number(row.get("test_images")) for row in rows.values()]
    errors = {}
    if "top1" in values and np.isfinite(counts).any():
        pairs = zip(values["top1"].tolist(), counts, strict=True)
        values["top1_error"] = np.array([100 * share_error(top1 / 100, count) for top1, count in pairs])
        errors = {"top1": "top1_error"}
    axes, dims = {"epoch": tuple(rows)}, dict.fromkeys(values, ("epoch",))
    about: dict[str, Any] = {**(_trained_model(run, name) or _measured_model(run, loaded))}
    tested = [int(count) for count in counts if np.isfinite(count)]
    about |= {"images": tested[-1]} if tested else {}
    about |= _recipe(run)
    return Measurement("training", name, values, dims, axes, {}, about, errors)


def _recipe(run: Path) -> dict[str, object]:
    """The recipe of a run; empty if it cannot be read."""
    try:
        recipe = json.loads((run / "recipe.json").read_text(encoding="utf-8"))
    except UNREADABLE:
        return {}
    return {"recipe": recipe} if isinstance(recipe, dict) else {}


def _trained_model(run: Path, name: str) -> dict[str, dict[str, object]]:
    """The provenance of the model with the final weights of a run, as `file/RUN` loads it; empty before the end."""
    weights = run / "model.safetensors"
    about = read_about(weights) if weights.is_file() else {}
    if "weights" not in about:
        return {}
    model = {"name": name, "expression": f"file/{run}", "weights": about["weights"], "origin": f"file: {run}"}
    return {"model": {**model, "parts": about.get("parts", [])}}


def _measured_model(run: Path, loaded: Mapping[Path, Measurement]) -> dict[str, dict[str, object]]:
    """The provenance of the model of a run from measurements of its final weights, for weights of older versions."""
    models = [m.provenance["model"] for m in loaded.values() if _is_of_run(run, m)]
    return {"model": models[0]} if len({model["weights"] for model in models}) == 1 else {}


def _model_of(run: Path, loaded: Mapping[Path, Measurement]) -> str:
    """The name of the model of a run: the subject that all measurements in its folder share, else the folder's name."""
    inside = {m.subject for file, m in loaded.items() if run in file.parents and not m.subject.startswith("file/")}
    return inside.pop() if len(inside) == 1 else run.name


def _is_file_of(run: Path, subject: str) -> bool:
    """Whether a subject is `file/PATH` with the path of a run folder or of its final weights."""
    if not subject.startswith("file/") or "|" in subject:
        return False
    path = user_path(subject.removeprefix("file/").strip())
    for own in (run, run / "model.safetensors"):
        elsewhere = not path.is_absolute() and own.parts[-len(path.parts) :] == path.parts  # relative to another folder
        if path.resolve() == own or elsewhere:
            return True
    return False


def _is_of_run(run: Path, measurement: Measurement) -> bool:
    """Whether the provenance of a measurement names the final weights of a run."""
    model = measurement.provenance.get("model")
    if not isinstance(model, dict) or not model.get("weights") or "|" in str(model.get("expression") or ""):
        return False
    origin = str(model.get("origin") or "")
    return origin.startswith("file: ") and _is_file_of(run, f"file/{origin.removeprefix('file: ')}")


def _runs(path: Path) -> list[Path]:
    """The run folders in a folder: the folders with a metrics file."""
    return sorted(file.parent for file in path.rglob("metrics.jsonl")) if path.is_dir() else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _measurement_files(path: Path) -> list[Path]:
    """The measurement files in a folder, sorted by time; a path to a file is returned as it is."""
    if not path.is_dir():
        return [path]
    return sorted(
        (file for file in path.rglob("*.json") if _is_measurement(file)), key=lambda file: (_time(file), file)
    )


def _time(file: Path) -> str:
    """The time of a measurement; empty if unknown."""
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["provenance"]["time"])
    except UNREADABLE:
        return ""


def _is_measurement(file: Path) -> bool:
    """Whether a JSON file is a measurement: it has arrays beside it or the keys of one. Other files are skipped."""
    if file.with_suffix(".npz").exists():
        return True
    try:
        text = json.loads(file.read_text(encoding="utf-8"))
    except UNREADABLE:
        return False
    return isinstance(text, dict) and text.keys() >= {"kind", "subject", "dims"}
