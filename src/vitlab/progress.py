"""A progress bar on a terminal: the model, the test, the step, the number of steps and the time left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from vitlab.core.step_cache import ReportProgress, State, step_cache

_SPEED_PERIOD = 1e9  # seconds over which the speed is estimated; the default of rich, 30, is shorter than many steps


class Bar:
    """Two lines on stderr, all work and the current piece; nothing where stderr is not a terminal.

    Args:
        total: the number of pieces of work.
        show: whether to show anything.
    """

    def __init__(self, total: int, *, show: bool = True) -> None:
        console = Console(stderr=True)
        text = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # model expressions are long
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=text),
            *(BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn()),
            console=console,
            expand=True,
            disable=not show or not console.is_terminal,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # otherwise piped results would be printed on stderr
            speed_estimate_period=_SPEED_PERIOD,
        )
        self._all = self._progress.add_task("all", total=total, visible=total > 1)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    @contextmanager
    def piece(self, what: str, weight: int = 1) -> Iterator[ReportProgress]:
        """One piece of work that counts as `weight` pieces; yields the callback for the progress of its steps."""
        progress, task = self._progress, self._progress.add_task(what, total=None)
        done = 0

        def report_progress(step: str, total: int | None, state: State) -> None:
            nonlocal done
            if state == "inside":
                progress.update(task, description=f"{step}: {what}")
                return
            done += state != "begun"
            if not done or state == "kept":  # start the clock here: cached steps take no time
                progress.reset(task, total=total, completed=done)
                progress.advance(task, 0)
            progress.update(task, total=total, completed=done, description=f"{step}: {what}")

        try:
            yield report_progress
            progress.advance(self._all, weight)
        finally:
            progress.remove_task(task)


@contextmanager
def waiting(what: str, *, show: bool = True) -> Iterator[None]:
    """Show a spinner and a text on stderr; nothing where stderr is not a terminal.

    Reports of `preparing` inside the block replace the text.

    Args:
        what: the text, for example `importing torch`.
        show: whether to show anything.
    """
    console = Console(stderr=True)
    if not show or not console.is_terminal:
        yield
        return

    def report_progress(step: str, total: int | None, state: State) -> None:
        status.update(escape(step))

    with console.status(escape(what)) as status, step_cache(None, report_progress):
        yield
