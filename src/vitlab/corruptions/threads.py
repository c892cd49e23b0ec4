"""Images shared out over threads, each operation of torch on one of them.

torch would share out every operation instead, and wait for the slowest thread at the end of each: for milliseconds,
hundreds of times, where other programs use the same cores. It also sums in an order that depends on threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch


def share_out(work: Callable[[range], None], count: int) -> None:
    """Do `work` on ranges that make up 0 … count − 1, on as many threads as torch has; the caller's takes the first.

    >>> done = []
    >>> share_out(done.extend, 5)
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """
    threads = torch.get_num_threads()
    size = max(1, -(-count // threads))
    ranges = [range(start, min(start + size, count)) for start in range(0, count, size)]
    try:
        torch.set_num_threads(1)  # for this thread, and for new ones at their first operation
        waiting = [_pool(threads, os.getpid()).submit(work, each) for each in ranges[1:]]
        for each in ranges[:1]:
            work(each)
        for future in waiting:
            future.result()
    finally:
        torch.set_num_threads(threads)


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads that stay, because the memory of a new one has to be made anew; those of a parent process do not fork."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="vitlab-corruptions")
