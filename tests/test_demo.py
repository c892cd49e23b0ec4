"""The demo runs end to end, resumes, and its report opens in a browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from browser import browser_page, chromium  # noqa: F401 (fixtures)
from vitlab.core.measurement import Measurement
from vitlab.demo import KINDS, MODELS

pytestmark = pytest.mark.slow


def demo(out: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "vitlab",
        "demo",
        "--out",
        str(out),
        "--epochs",
        "1",
        "--images",
        "96",
        "--json",
        "-q",
    ]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # another worker of the test run has the other core
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=alone)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("demo")
    return out, demo(out)


def test_three_models_are_trained_and_measured(finished: tuple[Path, dict[str, Any]]) -> None:
    out, result = finished
    assert len(result["sentences"]) == 3 and all(name in result["sentences"][0] for name in MODELS)
    for folder in (path for path in out.iterdir() if path.is_dir()):
        stored = [Measurement.load(path) for path in (folder / "measurements").rglob("*.json")]
        assert {"training", *(each.kind for each in stored)} == set(KINDS)
    assert Path(result["report"]).stat().st_size < 7e6


def test_a_second_run_trains_and_measures_nothing_again(finished: tuple[Path, dict[str, Any]]) -> None:
    out, result = finished
    before = {path: path.stat().st_mtime_ns for path in out.rglob("measurements/*/*.*")}
    weights = {path: path.read_bytes() for path in out.rglob("model.safetensors")}
    assert demo(out)["sentences"] == result["sentences"]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("measurements/*/*.*")} == before
    assert {path: path.read_bytes() for path in out.rglob("model.safetensors")} == weights


def test_the_report_opens_with_every_section_drawn(
    finished: tuple[Path, dict[str, Any]],
    browser_page: Any,  # noqa: F811
) -> None:
    browser_page.goto(Path(finished[1]["report"]).resolve().as_uri())
    titles = browser_page.locator("section .kind").evaluate_all("all => all.map(node => node.firstChild.textContent)")
    assert sorted(title.strip().lower() for title in titles) == sorted(kind.replace("_", " ") for kind in KINDS)
    browser_page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    figures = browser_page.locator("figure .plot")
    for index in range(figures.count()):
        figures.nth(index).scroll_into_view_if_needed()
        figures.nth(index).locator(".main-svg, canvas").first.wait_for(timeout=20_000)
    assert figures.count() >= len(KINDS)
