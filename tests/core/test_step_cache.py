"""The step cache stores finished steps, reports progress, and recomputes damaged steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vitlab.core.step_cache import report_done, step, step_cache


class Work:
    """Counts how often each step was computed, and fails at a given step."""

    def __init__(self, fails_at: str = "") -> None:
        self.done: list[str] = []
        self.fails_at = fails_at

    def __call__(self, name: str) -> float:
        def compute() -> dict[str, np.ndarray]:
            if name == self.fails_at:
                raise KeyboardInterrupt
            self.done.append(name)
            return {"value": np.array(float(len(name)))}

        return float(step(name, 3, compute)["value"])


STEPS = ("a", "bb/..", "ccc")


def test_an_interrupted_measurement_resumes_at_the_next_step(tmp_path: Path) -> None:
    first = Work(fails_at="ccc")
    with pytest.raises(KeyboardInterrupt), step_cache(tmp_path / "kept"):
        for name in STEPS:
            first(name)
    second = Work()
    with step_cache(tmp_path / "kept"):
        values = [second(name) for name in STEPS]
    assert (first.done, second.done, values) == (["a", "bb/.."], ["ccc"], [1.0, 5.0, 3.0])
    assert {path.parent for path in tmp_path.rglob("*.npz")} == {tmp_path / "kept"}


def test_a_damaged_step_is_repeated(tmp_path: Path) -> None:
    with step_cache(tmp_path):
        Work()("a")
    (file,) = tmp_path.glob("*.npz")
    file.write_bytes(file.read_bytes()[:-9])
    again = Work()
    with step_cache(tmp_path):
        assert again("a") == 1.0
    assert again.done == ["a"]


def test_progress_reports_every_step_and_nothing_else(tmp_path: Path) -> None:
    seen: list[tuple[object, ...]] = []
    for _ in range(2):
        with step_cache(tmp_path, lambda *report: seen.append(report)):
            Work()("a")
            report_done("16 images", None)
    Work()("a")
    report_done("16 images", None)
    first = [("a", 3, "begun"), ("a", 3, "done"), ("16 images", None, "done")]
    assert seen == [*first, ("a", 3, "kept"), ("16 images", None, "done")]


def test_a_failed_step_is_started_but_not_stored(tmp_path: Path) -> None:
    seen: list[tuple[object, ...]] = []
    with pytest.raises(KeyboardInterrupt), step_cache(tmp_path, lambda *report: seen.append(report)):
        Work(fails_at="a")("a")
    assert seen == [("a", 3, "begun")] and not list(tmp_path.iterdir())


def test_a_removed_folder_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process finished the same measurement between the creation of the folder and of the file."""
    original, removed = Path.open, []

    def opened(self: Path, *arguments: object, **named: object) -> object:
        if not removed:
            removed.append(self.parent)
            self.parent.rmdir()
        return original(self, *arguments, **named)

    monkeypatch.setattr(Path, "open", opened)
    with step_cache(tmp_path / "steps"):
        step("one", 1, lambda: {"a": np.ones(2)})
    assert removed == [tmp_path / "steps"] and len(list((tmp_path / "steps").iterdir())) == 1
