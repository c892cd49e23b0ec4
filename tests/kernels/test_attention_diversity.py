"""ADL from queries and keys against dense maps in float64; the kernels in Triton's interpreter."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import warnings

import pytest
import torch

from vitlab.core.anatomy import TokenLayout
from vitlab.kernels import attention_diversity, attention_diversity_plain, attention_diversity_triton, availability
from vitlab.losses.attention_diversification import attention_diversification
from vitlab.recording.attention_call import AttentionCall

#: batch, heads, queries, keys, channels, bias
SHAPES = [
    (1, 1, 1, 1, 4, "none"),
    (2, 3, 49, 49, 16, "added"),
    (2, 2, 33, 90, 24, "masked"),
    (1, 2, 50, 50, 64, "none"),
    (1, 1, 128, 128, 16, "none"),
]
LARGE = (1, 2, 197, 197, 32, "none")
FORMS = list(itertools.product([False, True], [False, True]))  # released, averaged


def operands(batch, heads, queries, keys, channels, bias, dtype=torch.float64):
    generator = torch.Generator().manual_seed(queries)
    q = torch.randn(batch, queries, heads, channels, generator=generator, dtype=torch.float64).transpose(1, 2) * 3
    k = torch.randn(batch, keys, heads, channels, generator=generator, dtype=torch.float64).transpose(1, 2)
    added = None
    if bias == "added":
        added = torch.randn(1, heads, queries, keys, generator=generator, dtype=torch.float64)
    if bias == "masked":
        added = torch.zeros(batch, 1, 1, keys, dtype=torch.float64)
        added[0, ..., 20:] = -torch.inf
    return q.to(dtype).requires_grad_(), k.to(dtype).requires_grad_(), added


def dense(q, k, bias, scale):
    logits = q @ k.mT * scale
    return (logits if bias is None else logits + bias).softmax(-1)


def exact(q, k, bias, released, averaged, tau=2.0):
    """The loss on maps, which its own tests compare with a loop."""
    form, heads = "released" if released else "paper", "mean" if averaged else "each"
    value = attention_diversification([dense(q, k, bias, 0.3)], tau=tau, form=form, heads=heads)
    return value * (1 + 1e-6) if released else value  # the released code divides by L + 1e-6


@pytest.mark.parametrize(("released", "averaged"), FORMS)
@pytest.mark.parametrize("shape", [*SHAPES, LARGE], ids=str)
def test_two_sums_give_the_loss_and_its_gradients(shape, released, averaged):
    q, k, bias = operands(*shape)
    threshold = 2.0 / k.shape[2]
    sums = attention_diversity_plain.row_sums(q, k, bias, 0.3, threshold, released, averaged)
    value = attention_diversity.from_sums(*sums, q.shape[2], threshold, released)
    expected = exact(q, k, bias, released, averaged)
    torch.testing.assert_close(value, expected)
    truths = torch.autograd.grad(expected, (q, k))
    given = torch.autograd.grad(value, sums, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(value, (q, k)), truths)
    found = attention_diversity_plain.row_sums_backward(*given, q, k, bias, 0.3, threshold, released, averaged)
    torch.testing.assert_close(found, truths)


@pytest.mark.parametrize(("released", "averaged"), FORMS)
def test_no_row_passes_the_threshold(released, averaged):
    q, k = (torch.zeros(1, 2, 5, 4, requires_grad=True) for _ in range(2))
    sums = attention_diversity_plain.row_sums(q, k, None, 1.0, 0.4, released, averaged)
    value = attention_diversity.from_sums(*sums, 5, 0.4, released)
    assert float(value.detach()) == 0
    assert all(torch.equal(each, torch.zeros_like(each)) for each in torch.autograd.grad(value, (q, k)))


def test_the_operator_in_a_graph_and_in_the_loss(monkeypatch):
    """Without Triton the operator computes the same from maps; a call is a graph without breaks."""
    pytest.importorskip("triton")
    monkeypatch.setattr(availability, "_FAILURES", {})
    monkeypatch.setattr(attention_diversity, "unavailable", torch.compiler.assume_constant_result(lambda *_: ""))
    q, k, bias = operands(*SHAPES[1])
    layout = TokenLayout((7, 7))

    def run(q, k):
        call = AttentionCall("a block", layout, layout, q=q, k=k, scale=0.3, bias=bias)
        return attention_diversification([call])

    with pytest.warns(UserWarning, match="attention_diversity runs without its kernel"):
        torch.testing.assert_close(run(q, k), exact(q, k, bias, False, True))
    truths = torch.autograd.grad(exact(q, k, bias, False, True), (q, k))
    for form in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
        torch.testing.assert_close(torch.autograd.grad(form(q, k), (q, k)), truths)
    small = [tensor[:, :, :3].detach().float().requires_grad_() for tensor in (q, k)]
    for averaged in (False, True):
        torch.library.opcheck(attention_diversity_triton.row_sums, (*small, None, 0.3, 0.3, False, averaged))


def test_what_the_kernel_does_not_support():
    q, k, bias = operands(*SHAPES[1])
    assert attention_diversity.missing(q, k[:, :1], None) == "queries share keys"
    assert "gradient of the bias" in attention_diversity.missing(q, k, bias.requires_grad_())
    assert attention_diversity.missing(q, k, None) == "cpu has no Triton kernels"
    large = torch.zeros(1, 1, 197, 64)
    assert "197 keys in float32" in attention_diversity.unsupported(large, large, None)
    assert attention_diversity.unsupported(large.bfloat16(), large.bfloat16(), None) == ""
    assert "1024 keys" in attention_diversity.unsupported_size(1024, 64)
    assert "96 channels" in attention_diversity.unsupported_size(49, 96)


def kernel_errors(device="cpu", dtype=torch.float32, shapes=SHAPES):
    """The largest error of the value and of both gradients, relative to the largest value."""
    found = []
    large = [] if device == "cuda" and dtype == torch.float32 else [(LARGE, (False, True))]  # see `unsupported`
    for shape, (released, averaged) in [*itertools.product(shapes, FORMS), *large]:
        q, k, bias = operands(*shape, dtype=dtype)
        wide = [tensor.detach().double().requires_grad_() for tensor in (q, k)]
        truth = exact(*wide, bias, released, averaged)
        truths = (truth, *torch.autograd.grad(truth, wide))
        q, k = (tensor.detach().to(device).requires_grad_() for tensor in (q, k))
        bias = None if bias is None else bias.to(device, torch.float32)
        settings = {"scale": 0.3, "bias": bias, "tau": 2.0, "released": released, "averaged": averaged}
        value = attention_diversity.diversity(q, k, **settings)
        pairs = zip((value, *torch.autograd.grad(value, (q, k))), truths, strict=True)
        found.append(max(float((a.cpu() - b).abs().max() / b.abs().max().clamp_min(1e-6)) for a, b in pairs))
    assert not availability._FAILURES, availability._FAILURES
    return found


def without_passing_rows():
    """The values and the largest gradients of uniform maps, none of whose entries reach the threshold."""
    found = []
    for released, averaged in FORMS:
        q, k = (torch.zeros(1, 2, 5, 16, requires_grad=True) for _ in range(2))
        settings = {"scale": 1.0, "bias": None, "tau": 2.0, "released": released, "averaged": averaged}
        value = attention_diversity.diversity(q, k, **settings)
        found += [float(value), *(float(each.abs().max()) for each in torch.autograd.grad(value, (q, k)))]
    return found


def gradients_are_differences():
    """gradcheck in float32, with steps large enough for its precision; at τ = 1.8 none crosses a threshold."""
    found = []
    for released, averaged in FORMS:
        q, k, _ = operands(1, 2, 6, 6, 4, "none", dtype=torch.float32)
        settings = {"scale": 0.3, "bias": None, "tau": 1.8, "released": released, "averaged": averaged}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of float32
            found.append(
                torch.autograd.gradcheck(
                    lambda *given, settings=settings: attention_diversity.diversity(*given, **settings),
                    (q, k),
                    **{"eps": 2e-3, "atol": 2e-3, "rtol": 0.02, "raise_exception": False, "check_batched_grad": False},
                )
            )
    return found


def test_the_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    run = subprocess.run(
        [sys.executable, __file__], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    errors = json.loads(run.stdout)
    assert len(errors["float32"]) == 4 * len(SHAPES) + 1 and max(errors["float32"]) < 1e-5
    assert max(errors["float16"]) < 2e-2  # the interpreter has no products of bfloat16
    assert errors["nothing passes"] == [0.0] * 12
    assert errors["gradcheck"] == [True] * 4


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=str)
def test_the_kernels_on_a_gpu(dtype, tolerance):
    assert max(kernel_errors("cuda", dtype)) < tolerance


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    found = {"float32": kernel_errors(), "float16": kernel_errors(dtype=torch.float16, shapes=[])}
    print(json.dumps({**found, "nothing passes": without_passing_rows(), "gradcheck": gradients_are_differences()}))
