"""Images shared out over threads, each operation of torch on one of them.

torch would share out every operation instead, and wait for the slowest thread at the end of each: for milliseconds,
hundreds of times, where other programs use the same cores. Its threads also go on spinning for a while afterwards,
on the cores that ours need, so that nothing may be left to them; and they sum in an order that depends on their number.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache

import torch


def share_out(work: Callable[[slice], None], count: int, step: int = 1) -> None:
    """Do `work` on slices of `step` that make up 0 … count − 1, on as many threads as torch has, the caller's included.

    Whoever is free takes the next slice.

    >>> done = []
    >>> share_out(lambda rows: done.extend(range(5)[rows]), 5, step=2)
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """
    slices = deque(slice(start, min(start + step, count)) for start in range(0, count, step))
    threads = torch.get_num_threads()
    _hold_memory(os.getpid())

    def take() -> None:
        while slices:
            try:
                rows = slices.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                work(rows)
            except BaseException:
                slices.clear()
                raise

    others: list[Future[None]] = []
    try:
        torch.set_num_threads(1)  # for this thread, and for new ones at their first operation
        others = [_pool(threads, os.getpid()).submit(take) for _ in range(min(threads, len(slices)) - 1)]
        take()
    finally:
        wait(others)
        torch.set_num_threads(threads)
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _hold_memory(process: int) -> None:
    """Let the C library keep freed memory: giving every temporary back to the system doubles the time of some work.

    glibc keeps as much as twice the largest block that it has seen freed, up to 32 MB; this block is never written to.
    """
    torch.empty(31 << 20, dtype=torch.uint8, device="cpu")


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads that stay, because the memory of a new one has to be made anew; those of a parent process do not fork."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="vitlab-corruptions")
