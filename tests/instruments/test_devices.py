"""GPU results equal CPU results, also with GPU kernels and when the buffer is moved to host memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitlab
from cases.attention import ATTENTION, pictures, sharp
from vitlab.core.batches import Batches
from vitlab.instruments.shared import device_buffer

ONE_PASS = (
    "attention_entropy",
    "attention_distance",
    "attention_diversity",
    "attention_stability",
    "token_overfocus",
    "softmax_gradient",
    "feature_fourier",
    "feature_variance",
    "lesion",
    "calibration",
)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ONE_PASS)
@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_the_same_on_a_gpu(case, name, monkeypatch):
    monkeypatch.setattr(device_buffer, "_MAX_DEVICE_BYTES", 1 << 10)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model, images = sharp(case), pictures(case, 5)
    labels = torch.arange(5) % 2
    items = [(images[:3], labels[:3]), (images[3:], labels[3:])]
    batches = Batches(items, (0.5,) * 3, (0.5,) * 3)
    here = vitlab.measure(name, model, batches).values
    there = vitlab.measure(name, model.to("cuda"), batches).values
    assert set(here) == set(there)
    for key, value in here.items():
        if key in ("histogram", "distribution", "by_entropy"):
            continue  # a value on the edge of a bin may fall on either side
        np.testing.assert_allclose(there[key], value, rtol=2e-3, atol=2e-4, err_msg=key)
