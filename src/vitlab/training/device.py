"""The device that training and measurements run on."""

from __future__ import annotations

import torch

from vitlab.core.errors import VitlabError, unknown


def choose_device(name: str | None = None) -> str:
    """Check a device by name, or choose the default.

    Args:
        name: `cpu`, `cuda`, `cuda:INDEX` or `mps`. By default CUDA where available, else the CPU. MPS is never the
            default: it has no float64, which several instruments need.

    >>> choose_device("cpu")
    'cpu'
    """
    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    available = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    kind, _, index = name.partition(":")
    if kind not in available:
        raise unknown("device", name, available)
    if not available[kind] or (":" in name and not (index.isdigit() and int(index) < available[kind])):
        present = " or ".join(each for each, count in available.items() if count)
        raise VitlabError(f"device {name!r} is not available on this machine; expected {present}")
    return name
