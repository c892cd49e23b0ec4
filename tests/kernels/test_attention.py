"""Attention with and without ADL against dense maps in float64; the kernels in Triton's interpreter."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointError, checkpoint

from vitlab.kernels import attention, attention_plain, attention_triton, availability
from vitlab.losses.attention_diversification import attention_diversification

#: batch, heads, queries, keys, channels, bias
SHAPES = [
    (1, 1, 1, 1, 4, "none"),
    (2, 3, 49, 49, 16, "added"),
    (2, 2, 33, 90, 24, "masked"),
    (1, 2, 65, 65, 64, "none"),
]
LARGE = (1, 2, 197, 197, 32, "none")
#: released, averaged, diversified
FORMS = [(*form, True) for form in itertools.product([False, True], [False, True])] + [(False, False, False)]


def operands(batch, heads, queries, keys, channels, bias, dtype=torch.float64):
    """Views of one tensor where the numbers of queries and keys agree, as in a model."""
    generator = torch.Generator().manual_seed(queries)
    shape = (batch, max(queries, keys), 3, heads, channels)
    q, k, v = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).permute(2, 0, 3, 1, 4)
    q, k, v = 3 * (16 / channels) ** 0.5 * q[:, :, :queries], k[:, :, :keys], v[:, :, :keys]
    added = None
    if bias == "added":
        added = torch.randn(1, heads, queries, keys, generator=generator, dtype=torch.float64).requires_grad_()
    if bias == "masked":
        added = torch.zeros(batch, 1, 1, keys, dtype=torch.float64)
        added[0, ..., 20:] = -torch.inf
    return *(x.detach().requires_grad_() for x in (q, k, v)), added


def exact(q, k, v, bias, released, averaged, diversified):
    """A sum of outputs with fixed weights, and the loss on the map, by torch's own operations."""
    logits = q @ k.mT * 0.3
    maps = (logits if bias is None else logits + bias).softmax(-1)
    output = maps @ v
    form, heads = "released" if released else "paper", "mean" if averaged else "each"
    value = attention_diversification([maps], form=form, heads=heads) if diversified else torch.zeros(())
    return output, value * (1 + 1e-6) if released else value  # the released code divides by L + 1e-6


def fused(q, k, v, bias, released, averaged, diversified):
    if not diversified:
        return attention.attend(q, k, v, scale=0.3, bias=bias), torch.zeros(())
    settings = {"scale": 0.3, "bias": bias, "tau": 2.0, "released": released, "averaged": averaged}
    return attention.attend_diversified(q, k, v, **settings)


def trained(q, k, v, bias):
    """The tensors that gradients are compared of."""
    return [x for x in (q, k, v, bias) if x is not None and x.requires_grad]


def gradients(found, inputs):
    """The gradients of output · its indices + 100 · the loss, so that both parts matter."""
    output, value = found
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64, device=output.device).reshape(output.shape)
    return torch.autograd.grad((output.double() * weights).sum() + 100 * value, inputs)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_plain_form_and_its_gradients(shape, form):
    q, k, v, bias = operands(*shape)
    released, averaged, diversified = form
    threshold = 2.0 / k.shape[2]
    settings = (0.3, threshold, released, averaged)
    output, value = exact(q, k, v, bias, *form)
    found, totals, units = attention_plain.attend(q, k, v, bias, *settings)
    torch.testing.assert_close(found, output)
    given = [torch.randn_like(output), *(torch.randn_like(totals) for _ in range(2))]
    inputs = trained(q, k, v, bias)
    truths = torch.autograd.grad(
        (found, totals, units) if diversified else found, inputs, given if diversified else given[0]
    )
    sums = given[1:] if diversified else None
    *found, d_logits = attention_plain.attend_backward(given[0], sums, q, k, v, bias, *settings)
    found += [d_logits.sum(0, keepdim=True)] if len(inputs) > 3 else []
    torch.testing.assert_close(found, list(truths))
    assert value.isfinite()


def test_the_operator_in_a_graph_and_without_triton(monkeypatch):
    """Where Triton fails the operator computes the same from maps; a call is a graph without breaks."""
    pytest.importorskip("triton")
    monkeypatch.setattr(availability, "_FAILURES", {})
    *inputs, bias = operands(*SHAPES[1])
    for form in FORMS:
        truths = exact(*inputs, bias, *form)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = fused(*inputs, bias, *form)
        assert len([each for each in caught if "attention runs without its kernel" in str(each.message)]) <= 1
        torch.testing.assert_close(found, truths, check_dtype=False)
        expected = gradients(truths, [*inputs, bias])
        compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
        for function in (fused, compiled):
            torch.testing.assert_close(gradients(function(*inputs, bias, *form), [*inputs, bias]), expected)
    assert "attention" in availability._FAILURES
    small = [tensor[:, :, :3].detach().float().requires_grad_() for tensor in inputs]
    for released, averaged, diversified in FORMS:
        torch.library.opcheck(attention_triton.attend, (*small, None, 0.3, 0.3, released, averaged, diversified))


def second_derivatives(found, inputs):
    """Derivatives of the sum of the gradients of the squared outputs and the loss."""
    output, value = found
    first = torch.autograd.grad(output.square().sum() + 10 * value, inputs, create_graph=True)
    return torch.autograd.grad(sum((each * torch.linspace(1, 2, each.shape[-1])).sum() for each in first), inputs)


def test_second_derivatives(monkeypatch):
    """Those of the dense form; NaN in both where the released form masks the whole average."""
    pytest.importorskip("triton")
    monkeypatch.setattr(availability, "_FAILURES", {"attention": "a test"})
    *inputs, bias = operands(1, 2, 5, 5, 4, "added")
    for form in FORMS:
        found, truths = (second_derivatives(run(*inputs, bias, *form), [*inputs, bias]) for run in (fused, exact))
        torch.testing.assert_close(found, truths, equal_nan=True)


def test_a_checkpoint_that_runs_other_attention_again_is_an_error(monkeypatch):
    """Its second forward runs outside of the mode, so that other tensors are saved; wrong gradients would be silent."""
    monkeypatch.setattr(attention, "unavailable", lambda *_: "")
    monkeypatch.setattr(availability, "_FAILURES", {"attention": "a test"})
    x = torch.randn(1, 2, 6, 8, dtype=torch.bfloat16, requires_grad=True)
    with attention.ShortAttention():
        y = checkpoint(lambda x: F.scaled_dot_product_attention(x, x, x), x, use_reentrant=False)
    with pytest.raises(CheckpointError):
        y.sum().backward()


def test_what_the_kernel_does_not_support():
    q, k, v, _ = operands(*SHAPES[1], dtype=torch.float16)
    assert attention.missing(q, k, v) == "cpu has no Triton kernels"
    assert "keys (2, 1, 49, 16)" in attention.missing(q, k[:, :1], v[:, :1])
    assert "values torch.float32" in attention.missing(q, k, v.float())
    assert "16 bits" in attention.missing(q.float(), k.float(), v.float())
    assert "3 dimensions" in attention.missing(q[0], k[0], v[0])
    long = torch.zeros(1, 1, 300, 16).half()
    assert "300 keys" in attention.unsupported(long[:, :, :9], long, long)
    assert "300 queries" in attention.unsupported(long, long[:, :, :9], long[:, :, :9])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "unavailable", lambda *_: "")
        found = []
        torch.func.grad(lambda q: found.append(attention.missing(q, k, v)) or q.float().sum())(q.detach())
        assert found == ["torch.func and torch.export need plain operations"] and attention.missing(q, k, v) == ""


def test_short_attention_computes_only_what_it_supports(monkeypatch):
    """Masks, dropout, causal attention, groups of heads, long sequences and float32 are left to torch."""
    used = []

    def attend(q, k, v, *, scale, bias=None):
        used.append(scale)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)

    monkeypatch.setattr(attention, "unavailable", lambda *_: "")
    monkeypatch.setattr(attention, "attend", attend)
    q, k, v = (torch.randn(2, 3, 65, 16, dtype=torch.bfloat16) for _ in range(3))
    long = torch.randn(2, 3, 129, 16, dtype=torch.bfloat16)
    mask = torch.zeros(65, 65, dtype=torch.bfloat16)
    left = [
        ((q, k, v), {"attn_mask": mask}),
        ((q, k, v), {"is_causal": True}),
        ((q, k[:, :1], v[:, :1]), {"enable_gqa": True}),
        ((q, long, long), {}),
        ((long, k, v), {}),
        ((q.float(), k.float(), v.float()), {}),
        ((q[0], k[0], v[0]), {}),
    ]
    for operands, named in left:
        expected = F.scaled_dot_product_attention(*operands, **named)
        with attention.ShortAttention():
            assert torch.equal(F.scaled_dot_product_attention(*operands, **named), expected)
    with attention.ShortAttention():
        F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert used == []
    with attention.ShortAttention():
        F.scaled_dot_product_attention(q, k, v, scale=0.3)
        F.scaled_dot_product_attention(q, long[:, :, :128], long[:, :, :128])
    assert used == [0.3, 0.25]
    F.scaled_dot_product_attention(q, k, v)
    assert len(used) == 2  # the mode ends with its block


def kernel_errors(device="cpu", dtype=torch.float32, shapes=SHAPES):
    """The largest error of output, loss and gradients, relative to the largest value of each."""
    found = []
    for shape, form in [*itertools.product(shapes, FORMS), (LARGE, (False, True, True)), (LARGE, (True, False, True))]:
        *inputs, bias = operands(*shape, dtype=dtype)
        wide = [*(tensor.detach().double().requires_grad_() for tensor in inputs), bias]
        truth = exact(*wide, *form)
        truths = (*truth, *gradients(truth, trained(*wide)))
        inputs = [tensor.detach().to(device).requires_grad_() for tensor in inputs]
        if bias is not None:
            bias = bias.detach().to(device, torch.float32).requires_grad_(bias.requires_grad)
        result = fused(*inputs, bias, *form)
        ours = [*result, *gradients(result, trained(*inputs, bias))]
        if not form[2]:  # the gradient of a sum is one number, expanded
            ours += torch.autograd.grad(fused(*inputs, bias, *form)[0].sum(), inputs[2])
            truths += torch.autograd.grad(exact(*wide, *form)[0].sum(), wide[2])
        pairs = zip(ours, truths, strict=True)
        found.append(max(float((a.cpu() - b).abs().max() / b.abs().max().clamp_min(1e-6)) for a, b in pairs))
    assert not availability._FAILURES, availability._FAILURES
    return found


def test_the_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    run = subprocess.run(
        [sys.executable, __file__], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    errors = json.loads(run.stdout)
    assert len(errors["float32"]) == len(FORMS) * len(SHAPES) + 2 and max(errors["float32"]) < 1e-5
    assert max(errors["float16"]) < 2e-2  # the interpreter has no products of bfloat16


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 5e-3), (torch.bfloat16, 2e-2)], ids=str)
def test_the_kernels_on_a_gpu(dtype, tolerance):
    assert max(kernel_errors("cuda", dtype)) < tolerance


@pytest.mark.gpu
def test_the_output_is_that_of_torch_on_a_gpu():
    *inputs, _ = operands(4, 3, 65, 65, 64, "none", dtype=torch.bfloat16)
    inputs = [tensor.detach().cuda() for tensor in inputs]
    expected = F.scaled_dot_product_attention(*(tensor.double() for tensor in inputs), scale=0.3)
    found = attention.attend(*inputs, scale=0.3)
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-2


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({"float32": kernel_errors(), "float16": kernel_errors(dtype=torch.float16, shapes=[])}))
