"""Which process of a torchrun job this is, read from the environment, without importing torch."""

from __future__ import annotations

import os


def is_distributed() -> bool:
    """Whether torchrun, or something that sets the same variables, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_leading() -> bool:
    """Whether this process prints results and remarks: rank 0, or the only process."""
    return not is_distributed() or int(os.environ["RANK"]) == 0
