"""A report of the models and kinds of the demo, with the random numbers of the benchmark."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.demo import KINDS, MODELS
from vitlab.reporting import report

ROOT = Path(__file__).resolve().parents[2]


def demo_report(path: Path) -> Path:
    """Write the report and return its path."""
    spec = importlib.util.spec_from_file_location("report_benchmark", ROOT / "benchmarks" / "report.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    found = []
    for seed, model in enumerate(MODELS):
        every = {each.kind: each for each in benchmark.synthetic(model, seed)}
        found += [attention_view(model) if kind == "attention_view" else every[kind] for kind in KINDS]
    assert {each.kind for each in found} == set(KINDS)
    return report(found, path, title="A demo")


def attention_view(subject: str, layers: int = 6, heads: int = 4, lattice: int = 7) -> Measurement:
    """Random attention of two images in the shapes of the demo."""
    random, names = np.random.default_rng(0), [f"blocks.{i}" for i in range(layers)]
    queries = 1 + lattice * lattice
    values = {
        "pictures": random.integers(0, 255, (2, 32, 32, 3), dtype=np.uint8),
        "label": np.array(["circle", "square"]),
        "class": np.array([["circle", "square", "star", "cross", "triangle"]] * 2),
        "probability": np.array([[0.6, 0.2, 0.1, 0.05, 0.05]] * 2),
        "lens class": np.full((2, layers, 1), "circle"),
        "lens probability": np.full((2, layers, 1), 0.5),
        "grid": np.full((layers, 2), 8),
        "bound": np.full(layers, np.log(65)),
        "kind": np.full(layers, "attention"),
        "why": np.full(layers, ""),
        "why no lens": np.full(layers, ""),
    }
    dims: dict[str, tuple[str, ...]] = {
        "pictures": ("image", "row", "column", "channel"),
        "label": ("image",),
        **dict.fromkeys(("class", "probability"), ("image", "rank")),
        **dict.fromkeys(("lens class", "lens probability"), ("image", "layer", "lens rank")),
        "grid": ("layer", "side"),
        **dict.fromkeys(("bound", "kind", "why", "why no lens"), ("layer",)),
    }
    for name in names:
        found = {"maps": random.integers(0, 255, (2, heads, queries, 64), dtype=np.uint8)}
        found |= {what: random.random((2, heads, queries)) for what in ("peak", "entropy")}
        found["prefix"] = random.random((2, heads, queries, 1))
        values |= {f"{what} of {name}": value for what, value in found.items()}
        dims |= {
            f"{what} of {name}": ("image", *(f"{what} axis {i} of {name}" for i in range(1, value.ndim)))
            for what, value in found.items()
        }
    return Measurement("attention_view", subject, values, dims, {"layer": tuple(names)}, {"lattice": lattice})
