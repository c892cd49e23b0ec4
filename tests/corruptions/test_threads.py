import threading

import pytest
import torch

from vitlab.corruptions.threads import run_in_threads


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_every_index_runs_once_with_one_torch_thread_each(threads, count, step):
    done, inside = [], set()

    def work(rows):
        done.extend(range(count)[rows])
        inside.add((threading.get_ident(), torch.get_num_threads()))

    run_in_threads(work, count, step)
    assert sorted(done) == list(range(count))
    assert {number for _, number in inside} <= {1}
    assert torch.get_num_threads() == threads


def test_a_free_thread_takes_pending_work_of_a_busy_one():
    before, done, others = torch.get_num_threads(), [], threading.Event()

    def work(rows):
        if rows.start == 0:
            assert others.wait(timeout=20)  # until the other thread has done all the rest
        done.append(rows.start)
        if len(done) == 5:
            others.set()

    try:
        torch.set_num_threads(2)
        run_in_threads(work, 6)
    finally:
        torch.set_num_threads(before)
    assert done == [1, 2, 3, 4, 5, 0]


def test_errors_of_any_thread_are_raised(threads):
    def work(rows):
        if rows.start == 5:
            raise ArithmeticError("row 5")

    with pytest.raises(ArithmeticError, match="row 5"):
        run_in_threads(work, 6)
    assert torch.get_num_threads() == threads
