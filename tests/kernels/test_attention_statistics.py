"""Streamed statistics against dense maps in float64; in Triton's interpreter, also inside instruments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import timm
import torch

import vitlab
from vitlab.core.anatomy import TokenLayout
from vitlab.instruments import measure_together
from vitlab.kernels import attention_rows, attention_statistics, availability
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


def wanted_of(places):
    """Requests: all statistics, without the sum over rows, without distances."""
    entire = {"entropy": None, "squares": None, "distance": places, "received": None}
    return [entire, {"distance": places, "entropy": None}, {"received": None, "squares": None}]


def error(values, truth):
    """The largest error relative to the largest value, or to 1."""
    return float((values - truth).abs().max() / truth.abs().max().clamp_min(1))


def errors_of_compiled_code(shape):
    """The errors of each statistic in compiled and exported code, under autocast or not."""
    q, k, bias, places = operands(*shape)
    truth = exact(q, k, 0.3, bias, places)
    found = []
    for wanted in wanted_of(places):

        class Fused(torch.nn.Module):
            def forward(self, q, k, wanted=wanted):
                return fused(q, k, 0.3, bias, wanted)

        exported = torch.export.export(Fused(), (q, k))
        assert "vitlab.attention_statistics.default" in str(exported.graph)
        for form in (torch.compile(Fused(), fullgraph=True, backend="aot_eager"), exported.module()):
            for lower in (False, True):
                with torch.autocast("cpu", torch.bfloat16, enabled=lower):
                    results = form(q, k)
                assert list(results) == list(wanted)
                found += [error(values, truth[name]) for name, values in results.items()]
    return found


def check_the_operator(shape):
    """Schema, fake tensors, dispatch and aliases, as torch checks them; no gradient instead of a wrong one."""
    q, k, bias, places = operands(*shape)
    for added, where, summed in ((bias, places, True), (None, places, False), (bias, (None, None), True)):
        torch.library.opcheck(attention_statistics.statistics, (q, k, added, *where, 0.3, summed))
    with pytest.raises(RuntimeError, match="no autograd formula"):
        fused(q.detach().requires_grad_(), k, 0.3, bias, {"entropy": None})["entropy"].sum().backward()


def test_the_operator_without_triton_and_in_a_graph(monkeypatch):
    """On CPU tensors the compiled kernels cannot run, as on a GPU without a compiler: it warns once."""
    pytest.importorskip("triton")
    monkeypatch.setattr(availability, "_FAILURES", {})
    monkeypatch.setattr(attention_rows, "CHUNK", 4 * 4 * 90 * 10)  # ten rows at a time
    q, k, bias, places = operands(*SHAPES[2])
    truth = exact(q, k, 0.3, bias, places)
    for i, wanted in enumerate(wanted_of(places)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = fused(q, k, 0.3, bias, wanted)
        assert len(caught) == (i == 0), [str(each.message) for each in caught]
        assert not caught or "attention_statistics runs without its kernel, since Triton" in str(caught[0].message)
        assert list(found) == list(wanted)
        for name, values in found.items():
            assert values.dtype == torch.float32
            torch.testing.assert_close(values.double(), truth[name], rtol=1e-4, atol=1e-5)
    assert max(errors_of_compiled_code(SHAPES[2])) < 1e-5
    check_the_operator(SHAPES[1])


def test_shapes_without_values(monkeypatch):
    """Statistics of meta tensors have the shapes, dtypes and strides of real ones."""
    monkeypatch.setattr(availability, "_FAILURES", {attention_statistics.OPERATOR: "no Triton"})
    q, k, bias, places = operands(*SHAPES[2])
    empty = [each.to("meta") for each in (q, k, bias, *places)]
    for wanted, without in zip(wanted_of(places), wanted_of(tuple(empty[3:])), strict=True):
        real, fake = fused(q, k, 0.3, bias, wanted), fused(*empty[:2], 0.3, empty[2], without)
        for name, values in real.items():
            assert fake[name].is_meta and fake[name].dtype == values.dtype == torch.float32
            assert fake[name].shape == values.shape == ((4, 4, 90) if name == "received" else (4, 4, 33))
            assert fake[name].stride() == values.stride()


def test_a_recorded_call_without_triton(monkeypatch):
    """The plain form inside the operator is not recorded as attention of the model."""
    monkeypatch.setattr(availability, "_FAILURES", {attention_statistics.OPERATOR: "no Triton"})
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=2)
    images, found = torch.randn(2, 3, 32, 32), []
    for reason in ("", "disabled"):
        monkeypatch.setattr(attention_statistics, "missing", lambda q, k, reason=reason: reason)
        with (
            torch.no_grad(),
            vitlab.record(model, "attention", reduce=lambda call: found.append(call.statistics(["entropy"]))),
        ):
            model(images)
    assert len(found) == 4, "two blocks, twice"
    torch.testing.assert_close(found[:2], found[2:])


def errors(device="cpu", dtype=torch.float32):
    found = []
    for shape in SHAPES:
        q, k, bias, places = operands(*shape)
        q, k = q.to(device, dtype), k.to(device, dtype)
        bias, places = None if bias is None else bias.to(device), tuple(each.to(device) for each in places)
        truth = exact(q, k, 0.3, bias, places)
        results = fused(q, k, 0.3, bias, {"entropy": None, "squares": None, "distance": places, "received": None})
        found.append(max(error(results[name], truth[name]) for name in truth))
    assert not availability._FAILURES, availability._FAILURES
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
    assert len(found["compiled"]) == 4 * 8 and max(found["compiled"]) < 1e-5
    assert found["calls"] == 4, "two blocks in two batches are streamed"
    assert set(found["instruments"]) == set(INSTRUMENTS) and max(found["instruments"].values()) < 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_a_gpu(dtype):
    assert max(errors("cuda", dtype)) < 1e-5


@pytest.mark.gpu
def test_in_a_cuda_graph():
    q, k, bias, places = operands(*SHAPES[2])
    truth = exact(q, k, 0.3, bias, places)
    q, k, bias, *places = (each.cuda() for each in (q, k, bias, *places))
    wanted = wanted_of(tuple(places))[0]
    fused(q, k, 0.3, bias, wanted)  # compiles the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = fused(q, k, 0.3, bias, wanted)
    graph.replay()
    for name, values in found.items():
        torch.testing.assert_close(values.cpu().double(), truth[name], rtol=1e-4, atol=1e-5)
    assert not availability._FAILURES, availability._FAILURES


if __name__ == "__main__":
    calls = []

    def counted(*arguments):
        calls.append(1)
        return fused(*arguments)

    compiled = errors_of_compiled_code(SHAPES[2])
    check_the_operator(SHAPES[5])
    exactness = [*errors(), *errors(dtype=torch.float16)]  # of the rounded operands, which the products keep exactly
    attention_statistics.missing = lambda q, k: ""  # the interpreter runs on CPU tensors
    attention_statistics.fused = counted
    found = {"errors": exactness, "compiled": compiled, "instruments": differences_of_instruments()}
    print(json.dumps({**found, "calls": len(calls)}))
