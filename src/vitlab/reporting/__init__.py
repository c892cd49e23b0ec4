"""Draw what was measured: Measurements in, one self-contained HTML page out. Imports core only, and no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.statistics import share_error
from vitlab.core.store import Run, read_about, write_atomically

__all__ = ["read", "report"]

#: What is drawn of a run's metrics.
_METRICS = ("train_loss", "loss", "top1", "top5", "lr")


def report(
    measurements: Iterable[Measurement], path: str | Path = "report.html", *, title: str = "vitlab report"
) -> Path:
    """Write one self-contained page: no network, one copy of plotly, every string escaped.

    Args:
        measurements: what was measured; the first model is the baseline. Parts of the images are pooled and other
            repeats of a kind and model averaged; measurements of different weights never are.
        path: the page to write.
        title: its heading.

    Returns:
        The path.
    """
    from vitlab.reporting.page import render

    found = list(measurements)
    if not found:
        raise VitlabError("there is nothing to report: no measurements were given")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(render(found, title).encode())
    return path


def read(paths: Sequence[str | Path]) -> list[Measurement]:
    """All measurements in some folders or files, each once; one error names all files that cannot be read.

    Those of a folder come in the order in which they were made, so that the model measured first is the baseline. The
    metrics of training runs among the folders follow, where a run holds no measurement of its training yet.
    """
    for path in map(Path, paths):
        if not path.exists() and not path.with_name(f"{path.name}.json").exists():
            raise VitlabError(f"there is no such file or folder: {path}")
    files = [file for path in map(Path, paths) for file in _inside(path)]
    runs = list(dict.fromkeys(run.resolve() for path in map(Path, paths) for run in _runs(path)))
    if not files and not runs:
        raise VitlabError(f"no measurements in {', '.join(map(str, paths))}; `vitlab measure` writes some")
    found: dict[Path, Measurement] = {}
    damaged = []
    for file in files:
        try:
            found.setdefault(file.resolve(), Measurement.load(file))
        except VitlabError as error:
            damaged.append(str(error))
    if damaged:
        raise VitlabError(
            f"{len(damaged)} of {len(files)} files cannot be read: {'; '.join(damaged)}; remove or repair"
        )
    for run in runs:
        name = _model_of(run, found)
        found = {file: replace(m, subject=name) if _is_file_of(run, m.subject) else m for file, m in found.items()}
    curves = [training_curve(run, found) for run in runs]
    made = [*found.values(), *(curve for curve in curves if curve is not None)]
    if not made:
        raise VitlabError(
            f"no measurements and no epochs in {', '.join(map(str, paths))}; `vitlab measure` writes some"
        )
    return made


def training_curve(run: Path, found: Mapping[Path, Measurement]) -> Measurement | None:
    """The metrics of a run folder by epoch; none where there are none, or where they are measured already.

    Args:
        run: the folder.
        found: measurements by file. Those of the weights that the run ended with say which weights these are.
    """
    rows = {row["epoch"]: row for row in Run(run).epochs()}
    kept = [name for name in _METRICS if any(name in row for row in rows.values())]
    if not kept or any(m.kind == "training" and run in file.parents for file, m in found.items()):
        return None
    values = {name: np.array([_number(row.get(name)) for row in rows.values()]) for name in kept}
    name = _model_of(run, found)
    counts = [_number(row.get("test_images")) for row in rows.values()]
    errors = {}
    if "top1" in values and np.isfinite(counts).any():
        pairs = zip(values["top1"].tolist(), counts, strict=True)
        values["top1_error"] = np.array([100 * share_error(top1 / 100, count) for top1, count in pairs])
        errors = {"top1": "top1_error"}
    axes, dims = {"epoch": tuple(rows)}, dict.fromkeys(values, ("epoch",))
    about = _trained_model(run, name) or _measured_model(run, found)
    return Measurement("training", name, values, dims, axes, {}, about, errors)


def _trained_model(run: Path, name: str) -> dict[str, dict[str, object]]:
    """Which model a run made: that of its last weights, as `file/RUN` loads them; nothing before the run is over."""
    weights = run / "model.safetensors"
    about = read_about(weights) if weights.is_file() else {}
    if "weights" not in about:
        return {}
    model = {"name": name, "expression": f"file/{run}", "weights": about["weights"], "origin": f"file: {run}"}
    return {"model": {**model, "parts": about.get("parts", [])}}


def _measured_model(run: Path, found: Mapping[Path, Measurement]) -> dict[str, dict[str, object]]:
    """Which model a run made, as measurements of its last weights say: weights of older versions do not say it."""
    models = [m.provenance["model"] for m in found.values() if _is_of_run(run, m)]
    return {"model": models[0]} if len({model["weights"] for model in models}) == 1 else {}


def _model_of(run: Path, found: Mapping[Path, Measurement]) -> str:
    """What the model of a run is called: as all measurements in its folder call it, else as the folder."""
    inside = {m.subject for file, m in found.items() if run in file.parents and not m.subject.startswith("file/")}
    return inside.pop() if len(inside) == 1 else run.name


def _is_file_of(run: Path, subject: str) -> bool:
    """Whether a subject is `file/PATH`, and the path that of a run's folder or of its last weights."""
    if not subject.startswith("file/") or "|" in subject:
        return False
    path = Path(subject.removeprefix("file/").strip()).expanduser()
    for own in (run, run / "model.safetensors"):
        elsewhere = not path.is_absolute() and own.parts[-len(path.parts) :] == path.parts  # measured from elsewhere
        if path.resolve() == own or elsewhere:
            return True
    return False


def _is_of_run(run: Path, measurement: Measurement) -> bool:
    """Whether a measurement says that it is of the weights that a run ended with."""
    model = measurement.provenance.get("model")
    if not isinstance(model, dict) or not model.get("weights") or "|" in str(model.get("expression") or ""):
        return False
    origin = str(model.get("origin") or "")
    return origin.startswith("file: ") and _is_file_of(run, f"file/{origin.removeprefix('file: ')}")


def _runs(path: Path) -> list[Path]:
    """The run folders in a folder: those with metrics."""
    return sorted(file.parent for file in path.rglob("metrics.jsonl")) if path.is_dir() else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _inside(path: Path) -> list[Path]:
    """The files of measurements in a folder, the earliest first; a file is its own."""
    if not path.is_dir():
        return [path]
    return sorted(
        (file for file in path.rglob("*.json") if _is_measurement(file)), key=lambda file: (_time(file), file)
    )


def _time(file: Path) -> str:
    """When a measurement was made; empty where that is not known."""
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["provenance"]["time"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _is_measurement(file: Path) -> bool:
    """Whether a JSON file lies beside its arrays, or says that it should: other files of a run are left alone."""
    if file.with_suffix(".npz").exists():
        return True
    try:
        text = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(text, dict) and text.keys() >= {"kind", "subject", "dims"}
