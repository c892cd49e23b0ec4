"""Measure a report: its size, the time to write it, and the time until Chromium shows the first figure.

    PYTHONPATH=src python benchmarks/report.py --out report_benchmark.json

Three models × all kinds, with random numbers in the shapes of a ViT of 12 layers and 12 heads. Times are wall and CPU
seconds; on a loaded machine only CPU seconds are meaningful.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting import read, report

MODELS = ("timm/vit_base_patch16_224(pretrained=True)", "ViT-B + CB", "ViT-B + TAP + ADL")
KINDS = Path(__file__).resolve().parent / "report_kinds.txt"
LAYERS = [f"blocks.{i}" for i in range(12)]
CORRUPTIONS = (
    "gaussian_noise shot_noise impulse_noise defocus_blur glass_blur motion_blur zoom_blur snow frost fog brightness "
    "contrast elastic_transform pixelate jpeg_compression"
)
AXES: dict[str, list[Any]] = {
    "layer": LAYERS,
    "place": [f"{layer} {side}" for layer in LAYERS for side in ("in", "mid", "out")],
    "step": [f"{layer} {branch}" for layer in LAYERS for branch in ("MSA", "MLP")],
    "unit": [f"{layer} {branch}" for layer in LAYERS for branch in ("MSA", "MLP")],
    "corruption": CORRUPTIONS.split(),
    "severity": [1, 2, 3, 4, 5],
    "attack": ["fgsm", "pgd"],
    "epsilon": [0.5, 1.0, 2.0, 4.0],
    "mask": [f"{kind} {share / 10}" for kind in ("centre", "patches") for share in range(1, 10)],
    "decision": ["shape", "texture", "both", "neither"],
    "set": ["matched-frequency", "threshold-0.7", "top-images"],
    "grid": [2, 4, 8, 14],
    "share": [0.05, 0.1],
    "quantile": [0.05, 0.25, 0.5, 0.75, 0.95],
    "seam": ["mlp.out"],
    "side": ["h", "w"],
    **{name: np.linspace(0.01, 1, 16).round(3).tolist() for name in ("frequency", "epoch share")},
    **{name: np.linspace(-1, 1, 21).round(3).tolist() for name in ("first", "second")},
    **{name: list(range(12)) for name in ("head", "other head", "other_layer", "block")},
    **{name: list(range(count)) for name, count in {"bin": 15, "edge": 16, "rank": 20, "mini_batch": 8}.items()},
    **{name: list(range(count)) for name, count in {"similarity": 50, "point": 64, "x1": 41, "x2": 41}.items()},
    **{name: list(range(count)) for name, count in {"epoch": 300, "snapshot": 31, "entropy share": 20}.items()},
    **{name: list(range(count)) for name, count in {"index": 8, "weight": 4, "perturbation": 10, "bound": 2}.items()},
    **{name: list(range(count)) for name, count in {"condition": 16, "class": 150, "run": 3, "group": 4}.items()},
}


def synthetic(subject: str, seed: int) -> list[Measurement]:
    """One measurement per kind, with random numbers between 0.3 and 0.9."""
    generator = np.random.default_rng(seed)
    found = []
    for line in KINDS.read_text(encoding="utf-8").splitlines():
        kind, _, rest = line.partition(":")
        dims = {name: tuple(a for a in axes.split(",") if a) for name, axes in re.findall(r"(\w+)\(([^)]*)\)", rest)}
        values = {name: value(name, [len(AXES[axis]) for axis in axes], generator) for name, axes in dims.items()}
        axes = {axis: tuple(AXES[axis]) for axis in dict.fromkeys(axis for each in dims.values() for axis in each)}
        about: dict[str, Any] = {"data": "imagenet test[:1000] 0123", "images": 1000, "device": "cuda", "seed": seed}
        found.append(Measurement(kind, subject, values, dims, axes, {}, about))
    return [*found, maps(subject, generator)]


def maps(subject: str, generator: np.random.Generator) -> Measurement:
    """`attention_maps` of two layers, two images and all tokens of a 14×14 grid."""
    layers = ("blocks.0", "blocks.11")
    values = {layer: generator.dirichlet(np.full(197, 0.1), (2, 12, 197)).astype(np.float32) for layer in layers}
    values |= {"key_grid": np.full((2, 2), 14), "key_prefix": np.ones(2, dtype=int)}
    dims = {layer: ("image", *(f"{axis} of {layer}" for axis in ("head", "query", "key"))) for layer in layers}
    dims |= {"key_grid": ("layer", "side"), "key_prefix": ("layer",)}
    return Measurement("attention_maps", subject, values, dims, {"layer": layers})


def value(name: str, shape: list[int], generator: np.random.Generator) -> np.ndarray:
    if name.endswith("_interval"):
        return np.array([0.2, 0.95]) if shape == [2] else np.full(shape, 0.02)
    if name.endswith("_error") and name not in ("train_error", "test_error"):
        return np.full(shape, 0.01)
    if name in ("bin_count", "products", "block", "stage", "train_images", "test_images"):
        return np.arange(1, 1 + int(np.prod(shape))).reshape(shape) if shape else np.array(1000)
    if name == "edges":
        return np.linspace(0, 1, shape[0])
    if name == "key_grid":
        return np.full(shape, 14)
    return np.asarray(generator.uniform(0.3, 0.9, shape))


def timed(work: Any) -> tuple[Any, float, float]:
    """The result of `work`, wall seconds and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def opening(path: Path, repeats: int = 5) -> dict[str, float]:
    """Median seconds from the start of navigation to the first text and to the first figure in Chromium."""
    from playwright.sync_api import sync_playwright

    marks = """() => new Promise(done => {
      const figures = '.attention-view canvas, .plot .main-svg .trace, .plot .main-svg .layer-above';
      const seen = () => document.querySelector(figures)
        ? requestAnimationFrame(() => done([performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0,
                                            performance.now()]))
        : setTimeout(seen, 5);
      seen(); })"""
    rows = []
    with sync_playwright() as session:
        browser = session.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for _ in range(repeats + 1):
            page = browser.new_page(viewport={"width": 1100, "height": 900})
            tools = page.context.new_cdp_session(page)
            tools.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.goto(path.resolve().as_uri(), wait_until="commit")
            text, figure = page.evaluate(marks)
            spent = {each["name"]: each["value"] for each in tools.send("Performance.getMetrics")["metrics"]}
            rows.append((text / 1000, figure / 1000, spent["TaskDuration"]))
            page.close()
        browser.close()
    medians = np.median(np.array(rows[1:]), axis=0).tolist()
    return dict(zip(("first_text_s", "first_figure_s", "main_thread_cpu_s"), medians, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="", help="JSON file to write")
    parser.add_argument("--no-browser", action="store_true", help="skip the measurements in Chromium")
    parser.add_argument("--also", nargs="*", default=[], help="additional stored measurements, such as attention views")
    options = parser.parse_args()
    every = [measurement for seed, model in enumerate(MODELS) for measurement in synthetic(model, seed)]
    with tempfile.TemporaryDirectory() as folder:
        for index, measurement in enumerate(every):
            measurement.save(Path(folder) / "runs" / f"{index:03d}")
        page = Path(folder) / "report.html"
        _, wall, cpu = timed(lambda: report(read([Path(folder) / "runs", *options.also]), page))
        rows = {"kinds": len(every) // len(MODELS), "measurements": len(every), "load": os.getloadavg()[0]}
        rows |= {"size_MB": page.stat().st_size / 1e6, "write_wall_s": wall, "write_cpu_s": cpu}
        rows |= {"drawn_by_axes_instead": page.read_text(encoding="utf-8").count("cannot draw these values")}
        _, wall, cpu = timed(lambda: report(every[:50], Path(folder) / "fifty.html"))
        rows |= {"write_50_wall_s": wall, "write_50_cpu_s": cpu}
        rows |= {} if options.no_browser else opening(page)
    rows["torch_loaded"] = "torch" in sys.modules
    for name, number in rows.items():
        print(f"{name:24s}{number:10.2f}" if isinstance(number, float) else f"{name:24s}{number!s:>10s}")
    if options.out:
        Path(options.out).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
