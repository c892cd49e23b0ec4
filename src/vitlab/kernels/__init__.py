"""Fused operators, each with its reference implementation in plain PyTorch.

A fused operator changes speed and memory, not the result. Callers check whether the kernel is available and otherwise
use the reference implementation, which runs on every device. `VITLAB_KERNELS=0` disables all kernels; `status` says
which form runs for a model, and why.
"""

from __future__ import annotations

from typing import Any

__all__ = ["status"]


def __getattr__(name: str) -> Any:
    if name == "status":  # imported on first use: the operators import this package
        from vitlab.kernels.kernel_paths import status

        return status
    raise AttributeError(f"module 'vitlab.kernels' has no attribute {name!r}; it has: status")
