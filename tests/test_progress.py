"""The progress bar estimates the remaining time from the steps that were computed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from vitlab.core.step_cache import preparing, step_cache
from vitlab.progress import Bar

SOURCE = Path(__file__).resolve().parent.parent / "src"


class Clock:
    """A clock that is advanced by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def bar_with(clock: Clock, total: int = 2) -> Bar:
    bar = Bar(total, show=False)
    bar._progress.get_time = clock
    return bar


@pytest.mark.parametrize("kept", [0, 40])
@pytest.mark.parametrize("seconds", [0.1, 60.0, 3600.0])
def test_the_time_left(kept: int, seconds: float) -> None:
    """After n steps of s seconds each, the remaining ones take s seconds each; cached steps count nothing."""
    clock = Clock()
    bar = bar_with(clock)
    with bar.piece("corruptions of a model") as report_progress:
        task = bar._progress.tasks[-1]
        for number in range(kept):
            report_progress(f"kept {number}", 76, "kept")
        for number in range(3):
            report_progress(f"step {number}", 76, "begun")
            clock.now += seconds
            report_progress(f"step {number}", 76, "done")
        assert (task.completed, task.total) == (kept + 3, 76)
        assert task.description == "step 2: corruptions of a model"
        assert task.time_remaining == pytest.approx((76 - kept - 3) * seconds, rel=0.01, abs=1)


def test_all_the_work_is_counted_and_only_what_was_finished() -> None:
    bar = bar_with(Clock())
    with bar:
        with bar.piece("one") as report_progress:
            report_progress("16 images", None, "done")
        with pytest.raises(KeyboardInterrupt), bar.piece("two"):
            raise KeyboardInterrupt
    (everything,) = bar._progress.tasks
    assert (everything.completed, everything.total) == (1, 2)


def test_preparations_are_shown_and_not_counted() -> None:
    bar = bar_with(Clock())
    with bar.piece("a model") as report_progress, step_cache(None, report_progress):
        task = bar._progress.tasks[-1]
        preparing("loading the model")
        assert (task.description, task.completed, task.total) == ("loading the model: a model", 0, None)
        preparing("drawing images, 0 of 64")
        assert (task.description, task.completed, task.total) == ("drawing images, 0 of 64: a model", 0, None)
        report_progress("16 images", 4, "done")
        assert (task.completed, task.total) == (1, 4)


def on_a_terminal(*command: str, folder: Path) -> tuple[str, str]:
    """What a command writes to stdout, and to stderr where that is a terminal."""
    reader, writer = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, cwd=folder, env=environment)
    os.close(writer)
    shown = b""
    while True:
        try:
            block = os.read(reader, 4096)
        except OSError:  # the other end was closed
            break
        if not block:
            break
        shown += block
    os.close(reader)
    output, _ = process.communicate(timeout=60)
    return output.decode(), shown.decode()


WAIT = """
import time
from vitlab.core.step_cache import preparing
from vitlab.progress import waiting
with waiting("importing [torch]", show={show}):
    time.sleep(0.3)
    preparing("drawing images")
    time.sleep(0.3)
print("done")
"""


def test_waiting_shows_what_is_done_now(tmp_path: Path) -> None:
    output, shown = on_a_terminal(sys.executable, "-c", WAIT.format(show=True), folder=tmp_path)
    assert output == "done\n" and 0 <= shown.index("importing [torch]") < shown.index("drawing images")


def test_waiting_shows_nothing_when_told_so_or_where_there_is_no_terminal(tmp_path: Path) -> None:
    assert on_a_terminal(sys.executable, "-c", WAIT.format(show=False), folder=tmp_path) == ("done\n", "")
    code, environment = WAIT.format(show=True), {**os.environ, "PYTHONPATH": str(SOURCE)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert (found.stdout, found.stderr) == ("done\n", "")


@pytest.mark.slow
def test_a_measurement_names_its_first_steps(tmp_path: Path) -> None:
    tiny = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)"
    command = ("measure", tiny, "--with", "attention_entropy", "--images", "8", "--out", str(tmp_path))
    output, shown = on_a_terminal(sys.executable, "-m", "vitlab", *command, folder=tmp_path)
    assert output.strip().endswith("attention_entropy.json")
    assert 0 <= shown.index("importing torch") < shown.index("loading the model")
