"""The rank of this process in a torchrun job, read from the environment without importing torch."""

from __future__ import annotations

import os


def is_distributed() -> bool:
    """Whether torchrun, or a launcher that sets the same environment variables, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_main_process() -> bool:
    """Whether this process prints results and messages: rank 0, or the only process."""
    return not is_distributed() or int(os.environ["RANK"]) == 0
