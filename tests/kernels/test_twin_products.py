"""The kernel against dense maps in float64: in Triton's interpreter on any machine, compiled where there is a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch

from vitlab.core.anatomy import TokenLayout
from vitlab.kernels import attention_rows, availability, twin_products
from vitlab.kernels.availability import unavailable
from vitlab.kernels.twin_products import fused, missing, plain
from vitlab.recording.attention_call import AttentionCall

#: pairs, heads, key heads, queries, keys, channels, bias
SHAPES = [
    (1, 1, 1, 1, 1, 1, "none"),
    (1, 1, 1, 5, 5, 8, "none"),
    (2, 3, 3, 70, 70, 16, "none"),
    (3, 4, 2, 33, 90, 24, "masked"),
    (1, 2, 2, 130, 49, 80, "masked"),
    (1, 2, 2, 197, 197, 64, "added"),
]


def operands(pairs, heads, shared, rows, columns, channels, bias):
    """Queries and keys as views into another layout, as models have them; a mask hides more than one block of keys."""
    generator = torch.Generator().manual_seed(rows)
    q = torch.randn(2 * pairs, rows, heads, channels, generator=generator).transpose(1, 2) * 2
    k = torch.randn(2 * pairs, columns, shared, channels, generator=generator).transpose(1, 2)
    if bias == "added":
        return q, k, torch.randn(1, heads, rows, columns, generator=generator)
    if bias == "masked":
        hidden = torch.zeros(2 * pairs, 1, 1, columns)
        hidden[0, ..., : columns - 5], hidden[1, ..., 5:] = -torch.inf, -torch.inf
        return q, k, hidden
    return q, k, None


def exact(q, k, scale, bias):
    """Products of the rows of dense maps, one vector with another."""
    logits = (q.double() @ k.double().repeat_interleave(q.shape[1] // k.shape[1], 1).mT) * scale
    first, second = (logits + (0 if bias is None else bias.double())).softmax(-1).chunk(2)
    pairs = ((first, second), (first, first), (second, second))
    return torch.stack([torch.einsum("bhnm,bhnm->bhn", a, b) for a, b in pairs])


def errors(device="cpu", dtype=torch.float32):
    found = []
    for shape in SHAPES:
        q, k, bias = operands(*shape)
        q, k = q.to(device, dtype), k.to(device, dtype)
        bias = None if bias is None else bias.to(device)
        truth = exact(q, k, 0.3, bias)
        found.append(float(((fused(q, k, 0.3, bias).double() - truth).abs() / truth).max()))
    assert not availability._FAILURES, availability._FAILURES
    return found


def errors_of_compiled_code(shape):
    """The largest errors of compiled and exported code, under autocast or not."""
    q, k, bias = operands(*shape)
    truth = exact(q, k, 0.3, bias)

    class Fused(torch.nn.Module):
        def forward(self, q, k):
            return fused(q, k, 0.3, bias)

    exported = torch.export.export(Fused(), (q, k))
    assert "vitlab.twin_products.default" in str(exported.graph)
    found = []
    for form in (torch.compile(Fused(), fullgraph=True, backend="aot_eager"), exported.module()):
        for lower in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=lower):
                found.append(float(((form(q, k).double() - truth).abs() / truth).max()))
    return found


def check_the_operator(shape):
    """Schema, fake tensors, dispatch and aliases, as torch checks them; no gradient instead of a wrong one."""
    q, k, bias = operands(*shape)
    for added in (bias, None):
        torch.library.opcheck(twin_products.products, (q, k, added, 0.3))
    with pytest.raises(RuntimeError, match="no autograd formula"):
        fused(q.detach().requires_grad_(), k, 0.3, bias).sum().backward()


@pytest.mark.slow
def test_in_the_interpreter():
    pytest.importorskip("triton")
    run = subprocess.run(
        [sys.executable, __file__], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert len(found["errors"]) == len(SHAPES) and max(found["errors"]) < 2e-5
    assert len(found["compiled"]) == 4 and max(found["compiled"]) < 2e-5


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compiled(dtype):
    assert max(errors("cuda", dtype)) < 2e-5


@pytest.mark.gpu
def test_in_a_cuda_graph():
    q, k, bias = operands(*SHAPES[3])
    truth = exact(q, k, 0.3, bias)
    q, k, bias = q.cuda(), k.cuda(), bias.cuda()
    fused(q, k, 0.3, bias)  # compiles the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = fused(q, k, 0.3, bias)
    graph.replay()
    torch.testing.assert_close(found.cpu().double(), truth, rtol=2e-5, atol=0)
    assert not availability._FAILURES, availability._FAILURES


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_plain_and_the_statistic_of_a_call(shape):
    q, k, bias = operands(*shape)
    layouts = TokenLayout((1, q.shape[2])), TokenLayout((1, k.shape[2]))
    call = AttentionCall("a block", *layouts, q=q, k=k, scale=0.3, bias=bias)
    assert missing(q)
    assert torch.allclose(plain(call.map()).double(), exact(q, k, 0.3, bias), rtol=1e-4)
    for lower in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=lower):
            found = call.statistics(["twins"])["twins"].double()
        assert torch.allclose(found, exact(q, k, 0.3, bias), rtol=1e-4)


def test_no_other_statistic_is_computed_with_the_products(monkeypatch):
    """A kernel that streams the map again, for nothing, doubled the cost of attention stability."""
    monkeypatch.setattr(twin_products, "missing", lambda q: "")
    monkeypatch.setattr(twin_products, "fused", lambda *operands: torch.ones(3, 1, 1, 4))
    monkeypatch.setattr(AttentionCall, "streamed", lambda self, wanted: pytest.fail(f"computed: {wanted}"))
    q, k, _ = operands(1, 1, 1, 4, 4, 8, "none")
    layout = TokenLayout((1, 4))
    assert AttentionCall("a block", layout, layout, q=q, k=k).statistics(["twins"])["twins"].eq(1).all()


def test_a_fully_masked_row_is_nan():
    q, k, _ = operands(1, 1, 1, 4, 4, 8, "none")
    hidden = torch.zeros(2, 1, 4, 4)
    hidden[0, 0, 2] = -torch.inf
    layout = TokenLayout((1, 4))
    found = AttentionCall("a block", layout, layout, q=q, k=k, bias=hidden).statistics(["twins"])["twins"]
    assert found[0, 0, 0].isnan().tolist() == [False, False, True, False]


@torch.no_grad()
def test_kernels_can_be_disabled(monkeypatch):
    """On a machine whose GPU could run the kernel."""
    pytest.importorskip("triton")
    q = torch.zeros(1, 1, 2, 512, device="meta")
    monkeypatch.setattr(twin_products, "unavailable", lambda name, *_: unavailable(name, torch.device("cuda")))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.version, "hip", None)
    assert (missing(q[..., :64]), missing(q)) == ("", "512 channels per head; at most 256")
    with torch.enable_grad():
        assert missing(q[..., :64]) == "gradients need plain operations"
    with availability.without_kernels("twin_products"):
        assert missing(q[..., :64]) == "disabled by `without_kernels`"
    monkeypatch.setenv("VITLAB_KERNELS", "0")
    assert missing(q[..., :64]) == "VITLAB_KERNELS=0"


def test_a_failure_of_triton_falls_back_to_the_plain_form(monkeypatch):
    """On CPU tensors the compiled kernel cannot run, as on a GPU without a compiler."""
    pytest.importorskip("triton")
    monkeypatch.setattr(availability, "_FAILURES", {})
    monkeypatch.setattr(twin_products, "missing", lambda q: "")
    q, k, _ = operands(1, 1, 1, 4, 4, 8, "none")
    layout = TokenLayout((1, 4))
    call = AttentionCall("a block", layout, layout, q=q, k=k, scale=0.3)
    with pytest.warns(UserWarning, match="twin_products runs without its kernel, since Triton failed"):
        found = call.statistics(["twins"])["twins"]
    assert torch.allclose(found.double(), exact(q, k, 0.3, None), rtol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(call.statistics(["twins"])["twins"], found), "it is not tried again"


def test_the_operator_without_triton_and_in_a_graph(monkeypatch):
    """It warns once; the plain form computes some rows at a time."""
    pytest.importorskip("triton")
    monkeypatch.setattr(availability, "_FAILURES", {})
    monkeypatch.setattr(attention_rows, "CHUNK", 6 * 4 * 90 * 10)  # ten rows at a time
    q, k, bias = operands(*SHAPES[3])
    with pytest.warns(UserWarning, match="twin_products runs without its kernel") as caught:
        found = [fused(q, k, 0.3, bias) for _ in range(2)]
    assert len(caught) == 1
    for each in found:
        assert each.dtype == torch.float32
        torch.testing.assert_close(each.double(), exact(q, k, 0.3, bias), rtol=1e-4, atol=0)
    assert max(errors_of_compiled_code(SHAPES[3])) < 1e-4
    check_the_operator(SHAPES[2])


def test_shapes_without_values(monkeypatch):
    """Products of meta tensors have the shape, dtype and strides of real ones."""
    monkeypatch.setattr(availability, "_FAILURES", {twin_products.OPERATOR: "no Triton"})
    given = operands(*SHAPES[3])
    (q, k, bias), (empty_q, empty_k, empty_bias) = given, (each.to("meta") for each in given)
    real, fake = fused(q, k, 0.3, bias), fused(empty_q, empty_k, 0.3, empty_bias)
    assert fake.is_meta and fake.dtype == real.dtype == torch.float32
    assert fake.shape == real.shape == (3, 3, 4, 33) and fake.stride() == real.stride()


if __name__ == "__main__":
    check_the_operator(SHAPES[2])
    print(json.dumps({"compiled": errors_of_compiled_code(SHAPES[3]), "errors": errors()}))
