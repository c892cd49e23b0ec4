"""NVIDIA's multi-process service, which lets the kernels of several processes run at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["shared_device"]

_PROBE = "import torch; torch.zeros(1, device='cuda').add_(1).item()"


@contextmanager
def shared_device(wanted: bool) -> Iterator[bool]:
    """Run the service during the block, if requested and available; yields whether it runs."""
    if not wanted or not _started():
        yield False
        return
    try:
        yield True
    finally:
        _quit()


def _started() -> bool:
    folder = tempfile.mkdtemp(prefix="mps-")
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = folder
    try:
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True, timeout=20, capture_output=True)
        subprocess.run([sys.executable, "-c", _PROBE], check=True, timeout=90, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        detail = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()[-1:]
        print(f"MPS is not available ({type(error).__name__} {' '.join(detail)}); going on without", flush=True)
        _quit()
        return False
    print("MPS is running", flush=True)
    return True


def _quit() -> None:
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", timeout=20, capture_output=True, check=False)
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        os.environ.pop(name, None)
