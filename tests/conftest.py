"""One thread for each test process, the same examples in every run, and the real data if present.

Models are tiny, and `make test` runs one process a core: more threads would only get in each other's way. Property
tests draw the same examples each time, so that a run says something of the change; `HYPOTHESIS_PROFILE=search` draws
new ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("same", derandomize=True)
settings.register_profile("search")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

PACKS = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
UNPACKED = {
    "cifar100": "cifar-100-binary",
    "imagenet": "imagenet-val-1000",
    "deit": "deit_tiny_patch16_224.safetensors",
}


def pytest_configure(config: pytest.Config) -> None:
    """Find the real data: VITLAB_DATA, else the packs beside the checkout, unpacked once into a cache folder."""
    if "VITLAB_DATA" in os.environ or hasattr(config, "workerinput") or not (PACKS / "unpack.py").exists():
        return
    cache = Path(tempfile.gettempdir()) / "vitlab-real-data"
    for pack, name in UNPACKED.items():
        done = cache / f".{pack}"
        if not done.exists():
            cache.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                [sys.executable, str(PACKS / "unpack.py"), str(cache), pack], check=True, capture_output=True
            )
            assert (cache / name).exists()
            done.touch()
    os.environ["VITLAB_DATA"] = str(cache)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this machine cannot run, and mark the tests in a browser."""
    no_data = pytest.mark.skip(reason="no real data: set VITLAB_DATA to a folder that unpack.py filled")
    no_gpu = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
        if item.get_closest_marker("realdata") and "VITLAB_DATA" not in os.environ:
            item.add_marker(no_data)
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(no_gpu)
