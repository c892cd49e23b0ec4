"""A bar for long work on a terminal: which model, which test, which step, how many are done, and the time left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from vitlab.core.step_cache import ReportProgress, State, step_cache

_AS_LONG_AS_IT_TAKES = 1e9  # seconds that a step may last and still count for the time left; rich's own are 30


class Bar:
    """Two lines on stderr, the work in all and its present piece; nothing where stderr is no terminal.

    Args:
        total: how many pieces of work there are.
        show: whether to show anything at all.
    """

    def __init__(self, total: int, *, show: bool = True) -> None:
        console = Console(stderr=True)
        said = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # model expressions are long, the rest is not
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=said),
            *(BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn()),
            console=console,
            expand=True,
            disable=not show or not console.is_terminal,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # else results meant for a file or a pipe would end up on stderr
            speed_estimate_period=_AS_LONG_AS_IT_TAKES,
        )
        self._all = self._progress.add_task("all", total=total, visible=total > 1)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    @contextmanager
    def piece(self, what: str, weight: int = 1) -> Iterator[ReportProgress]:
        """One piece of the work, as long as `weight` others; yields what a step cache tells of its steps."""
        progress, task = self._progress, self._progress.add_task(what, total=None)
        done = 0

        def report_progress(step: str, total: int | None, state: State) -> None:
            nonlocal done
            done += state != "begun"
            if not done or state == "kept":  # the clock starts here: steps found in the step cache took no time
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
    """Show on stderr what is being done, with a spinner; nothing where stderr is no terminal.

    What the work inside reports with `preparing` takes the place of the text.

    Args:
        what: the text, for example `importing torch`.
        show: whether to show anything at all.
    """
    console = Console(stderr=True)
    if not show or not console.is_terminal:
        yield
        return

    def report_progress(step: str, total: int | None, state: State) -> None:
        status.update(escape(step))

    with console.status(escape(what)) as status, step_cache(None, report_progress):
        yield
