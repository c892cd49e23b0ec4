"""The device is checked once, for training and for measurements."""

from __future__ import annotations

import pytest
import torch

from vitlab.core.errors import VitlabError
from vitlab.training.device import choose_device
from vitlab.training.distributed import init_distributed


def test_cuda_is_the_default_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert choose_device() == expected


@pytest.mark.parametrize(("name", "good"), [("cuda:1", True), ("cuda:2", False), ("cuda:x", False), ("mps", True)])
def test_unavailable_devices_raise(name: str, good: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    if good:
        assert choose_device(name) == name
    else:
        with pytest.raises(VitlabError, match=f"device '{name}' is not available on this machine; expected cpu or cud"):
            choose_device(name)


@pytest.mark.parametrize("use", [choose_device, init_distributed])
def test_unknown_devices_raise(use) -> None:
    with pytest.raises(VitlabError, match="no device 'tpu' .*there are: cpu, cuda, mps"):
        use("tpu")
