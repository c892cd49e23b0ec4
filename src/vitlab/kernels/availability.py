"""Whether Triton kernels can run on a tensor, and if not, why; failures are remembered, so that they happen once."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

try:
    import triton
except ImportError:  # only CUDA builds of torch include it
    triton = None

T = TypeVar("T")

_FAILURES: dict[str, str] = {}
_DISABLED: set[str] = set()


@torch.compiler.assume_constant_result  # depends on the machine and the settings, not on tensors
def unavailable(operator: str, device: torch.device, dtype: torch.dtype = torch.float32) -> str:
    """Returns why the Triton kernels of an operator cannot run on a device, or an empty string.

    >>> unavailable("token_pooling", torch.device("cpu"))
    'cpu has no Triton kernels'
    """
    if device.type != "cuda":
        return f"{device.type} has no Triton kernels"
    if triton is None:
        return "triton is not installed"
    if os.environ.get("VITLAB_KERNELS") == "0":
        return "VITLAB_KERNELS=0"
    if operator in _DISABLED:
        return "disabled by `without_kernels`"
    if torch.version.hip is not None or torch.cuda.get_device_capability(device) < (8, 0):
        return "needs an NVIDIA GPU with compute capability 8.0"
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"{dtype} is not supported"
    return f"Triton failed: {_FAILURES[operator]}" if operator in _FAILURES else ""


@torch.compiler.assume_constant_result  # Dynamo of torch 2.11 replaces `is_exporting` by True in all compiled code
def transformed() -> bool:
    """Whether code runs inside a transform of torch.func or in torch.export, which need plain torch operations."""
    return torch.compiler.is_exporting() or torch._C._functorch.peek_interpreter_stack() is not None


@contextmanager
def without_kernels(*operators: str) -> Iterator[None]:
    """Use the plain torch forms of the given operators inside a `with` block; for comparisons.

    The choice of a form is a constant of compiled code, so all compiled functions are compiled again.
    """
    added = set(operators) - _DISABLED
    _DISABLED.update(added)
    _discard_compiled_code(added)
    try:
        yield
    finally:
        _DISABLED.difference_update(added)
        _discard_compiled_code(added)


def _discard_compiled_code(changed: set[str]) -> None:
    if changed and "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def run(operator: str, kernel: Callable[[], T], plain: Callable[[], T]) -> T:
    """Returns the result of a kernel; if Triton fails, warns once and returns that of the plain form from then on."""
    if operator in _FAILURES:
        return plain()
    try:
        return kernel()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # for example, Triton needs a C compiler, or the GPU has less shared memory
        _FAILURES[operator] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
        warnings.warn(f"{operator} runs without its kernel, since Triton failed: {_FAILURES[operator]}", stacklevel=2)
        return plain()


def device_guard(x: Tensor) -> AbstractContextManager[object]:
    """Makes the device of a CUDA tensor current, as Triton requires."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
