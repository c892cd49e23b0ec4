import threading

import pytest
import torch

from vitlab.corruptions.threads import share_out


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_every_index_is_worked_on_once_and_each_thread_has_one_of_torchs(threads, count):
    done, inside = [], set()

    def work(rows):
        done.extend(rows)
        inside.add((threading.get_ident(), torch.get_num_threads()))

    share_out(work, count)
    assert sorted(done) == list(range(count))
    assert {number for _, number in inside} <= {1}
    assert torch.get_num_threads() == threads


def test_errors_of_any_thread_come_out_and_leave_no_trace(threads):
    def work(rows):
        if 5 in rows:
            raise ArithmeticError("row 5")

    with pytest.raises(ArithmeticError, match="row 5"):
        share_out(work, 6)
    assert torch.get_num_threads() == threads
