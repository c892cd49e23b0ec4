"""The bar tells the time left from the steps that were really done, however long one takes."""

from __future__ import annotations

import pytest

from vitlab.progress import Bar


class Clock:
    """Seconds that pass when told to."""

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
    """After n steps of s seconds each, those that are left take s seconds each; steps from the ledger count nothing."""
    clock = Clock()
    bar = bar_with(clock)
    with bar.piece("corruptions of a model") as watch:
        task = bar._progress.tasks[-1]
        for number in range(kept):
            watch(f"kept {number}", 76, "kept")
        for number in range(3):
            watch(f"step {number}", 76, "begun")
            clock.now += seconds
            watch(f"step {number}", 76, "done")
        assert (task.completed, task.total) == (kept + 3, 76)
        assert task.description == "step 2: corruptions of a model"
        assert task.time_remaining == pytest.approx((76 - kept - 3) * seconds, rel=0.01, abs=1)


def test_all_the_work_is_counted_and_only_what_was_finished() -> None:
    bar = bar_with(Clock())
    with bar:
        with bar.piece("one") as watch:
            watch("16 images", None, "done")
        with pytest.raises(KeyboardInterrupt), bar.piece("two"):
            raise KeyboardInterrupt
    (everything,) = bar._progress.tasks
    assert (everything.completed, everything.total) == (1, 2)
