"""Streamed statistics against dense maps in float64; in Triton's interpreter, also inside instruments."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import timm
import torch

from vitlab.core.anatomy import TokenLayout
from vitlab.instruments import measure_together
from vitlab.kernels import attention_statistics
from vitlab.kernels.attention_statistics import fused, plain
from vitlab.recording.attention_call import AttentionCall

#: batch, windows, heads, key heads, queries, keys, channels, bias
SHAPES = [
    (1, 1, 1, 1, 1, 1, 1, "none"),
    (2, 1, 2, 2, 50, 50, 16, "none"),
    (4, 2, 4, 2, 33, 90, 24, "masked"),
    (1, 1, 1, 1, 70, 197, 64, "added"),
    (1, 1, 1, 1, 17, 40, 80, "none"),
    (1, 1, 1, 1, 49, 49, 32, "added"),
    (1, 1, 1, 1, 1024, 1024, 16, "none"),
]
INSTRUMENTS = ("attention_entropy", "attention_distance", "token_overfocus")


def operands(batch, windows, heads, shared, rows, columns, channels, bias):
    generator = torch.Generator().manual_seed(rows)
    q = torch.randn(batch, rows, heads, channels, generator=generator).transpose(1, 2) * 3
    k = torch.randn(batch, columns, shared, channels, generator=generator).transpose(1, 2)
    added = None
    if bias == "added":
        added = 4 * torch.randn(1, heads, rows, columns, generator=generator)
    if bias == "masked":  # more than one block of keys
        added = torch.zeros(batch, 1, 1, columns)
        added[0, ..., : columns - 5], added[1, ..., 5:] = -torch.inf, -torch.inf
    places = [torch.rand(windows, count, 2, generator=generator) for count in (rows, columns)]
    places[1][:, : columns // 8] = torch.nan  # tokens without a position
    return q, k, added, tuple(places)


def exact(q, k, scale, bias, places):
    """Row by row, one vector at a time."""
    logits = (q.double() @ k.double().repeat_interleave(q.shape[1] // k.shape[1], 1).mT) * scale
    maps = (logits if bias is None else logits + bias.double()).softmax(-1)
    rows, columns = (each.double().repeat(len(q) // len(each), 1, 1) for each in places)
    apart = torch.cdist(rows, columns, p=1)
    apart = torch.where(columns[:, None, :, 0].isnan(), 0.0, apart)
    logs = torch.where(maps > 0, maps, 1.0).log()
    return {
        "entropy": -torch.einsum("bhnm,bhnm->bhn", maps, logs),
        "squares": torch.einsum("bhnm,bhnm->bhn", maps, maps),
        "distance": torch.einsum("bhnm,bnm->bhn", maps, apart),
        "received": torch.einsum("bhnm->bhm", maps),
    }


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_plain(shape):
    q, k, bias, places = operands(*shape)
    layouts = TokenLayout((1, q.shape[2])), TokenLayout((1, k.shape[2]))
    maps = AttentionCall("a block", *layouts, q=q, k=k, scale=0.3, bias=bias).map()
    found = plain(maps, {"entropy": None, "squares": None, "distance": places, "received": None})
    truth = exact(q, k, 0.3, bias, places)
    for name, values in found.items():
        torch.testing.assert_close(values.double(), truth[name], rtol=1e-4, atol=1e-5)


def test_a_cpu_call_is_not_streamed():
    q, k, *_ = operands(*SHAPES[1])
    layout = TokenLayout((1, 50))
    assert AttentionCall("a block", layout, layout, q=q, k=k).streamed({"entropy": None}) is None


def errors(device="cpu", dtype=torch.float32):
    found = []
    for shape in SHAPES:
        q, k, bias, places = operands(*shape)
        q, k = q.to(device, dtype), k.to(device, dtype)
        bias, places = None if bias is None else bias.to(device), tuple(each.to(device) for each in places)
        truth = exact(q, k, 0.3, bias, places)
        results = fused(q, k, 0.3, bias, {"entropy": None, "squares": None, "distance": places, "received": None})
        found.append(
            max(
                float((results[name] - truth[name]).abs().max() / truth[name].abs().max().clamp_min(1))
                for name in truth
            )
        )
    return found


def differences_of_instruments(device="cpu"):
    """The largest difference between measurements with streamed statistics and with rows."""
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=2).to(
        device
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    batches = [torch.randn(2, 3, 32, 32, device=device) for _ in range(2)]
    streamed = measure_together(INSTRUMENTS, model, batches)
    attention_statistics.missing = lambda q, k: "disabled"
    rows = measure_together(INSTRUMENTS, model, batches)
    found = {}
    for kind in INSTRUMENTS:
        a, b = streamed[kind].values, rows[kind].values
        found[kind] = max(float(np.nanmax(np.abs(a[name] - b[name]))) for name in a if name != "row_histogram")
    return found


def test_in_the_interpreter():
    pytest.importorskip("triton")
    run = subprocess.run(
        [sys.executable, __file__], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert len(found["errors"]) == 2 * len(SHAPES) and max(found["errors"]) < 1e-5
    assert found["calls"] == 4, "two blocks in two batches are streamed"
    assert set(found["instruments"]) == set(INSTRUMENTS) and max(found["instruments"].values()) < 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_a_gpu(dtype):
    assert max(errors("cuda", dtype)) < 1e-5


if __name__ == "__main__":
    calls = []

    def counted(*arguments):
        calls.append(1)
        return fused(*arguments)

    exactness = [*errors(), *errors(dtype=torch.float16)]  # of the rounded operands, which the products keep exactly
    attention_statistics.missing = lambda q, k: ""  # the interpreter runs on CPU tensors
    attention_statistics.fused = counted
    print(json.dumps({"errors": exactness, "instruments": differences_of_instruments(), "calls": len(calls)}))
