"""Process images in parallel threads, with torch limited to one thread per operation.

By default torch splits every operation over its threads and waits for the slowest one. If other programs use the same
cores, this costs milliseconds per operation, for hundreds of operations. Its threads also busy-wait after each
operation, on cores that our threads need, and their order of summation depends on their number.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache

import torch


def run_in_threads(work: Callable[[slice], None], count: int, step: int = 1) -> None:
    """Call `work` on slices of length `step` that cover 0 … count − 1, in `torch.get_num_threads()` threads.

    The calling thread is one of them. Each idle thread takes the next slice.

    >>> done = []
    >>> run_in_threads(lambda rows: done.extend(range(5)[rows]), 5, step=2)
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """
    slices = deque(slice(start, min(start + step, count)) for start in range(0, count, step))
    threads = torch.get_num_threads()
    _retain_memory(os.getpid())

    def process_slices() -> None:
        while slices:
            try:
                rows = slices.popleft()
            except IndexError:  # another thread took the last slice
                return
            try:
                work(rows)
            except BaseException:
                slices.clear()
                raise

    others: list[Future[None]] = []
    try:
        torch.set_num_threads(1)  # for this thread, and for new ones at their first operation
        others = [_pool(threads, os.getpid()).submit(process_slices) for _ in range(min(threads, len(slices)) - 1)]
        process_slices()
    finally:
        wait(others)
        torch.set_num_threads(threads)
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _retain_memory(process: int) -> None:
    """Make the C library retain freed memory; returning every temporary to the system doubles the time of some work.

    glibc retains up to twice the largest block that was freed, at most 32 MB. This block is never written to.
    """
    torch.empty(31 << 20, dtype=torch.uint8, device="cpu")


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Returns persistent threads, which reuse their memory. Keyed by process, because threads do not survive a fork."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="vitlab-corruptions")
