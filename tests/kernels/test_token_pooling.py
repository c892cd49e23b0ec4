"""Every form of pooling against a loop over tokens and neighbours; the kernel in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from vitlab.kernels import availability, token_pooling, token_pooling_triton
from vitlab.kernels.token_pooling_plain import banded, dense, shifted, shifted_backward

#: grid, prefix, channels, branches, nested: N = 1, 49, 50, 63, 68, 196, 197, 1024, 65, 69
SHAPES = [
    ((1, 1), 0, 3, 4, False),
    ((7, 7), 0, 5, 4, False),
    ((7, 7), 1, 5, 3, True),
    ((7, 9), 0, 4, 4, True),
    ((7, 9), 5, 4, 4, False),
    ((14, 14), 0, 3, 2, True),
    ((14, 14), 1, 20, 4, False),
    ((32, 32), 0, 3, 2, False),
    ((8, 8), 1, 130, 4, False),  # the grid fills a tile; three blocks of channels
    ((8, 8), 5, 20, 4, True),
]


def by_hand(x, weights, grid, prefix, nested):
    """y_p = Σ_k s_pk · mean over the neighbours of branch k, one neighbour at a time."""
    h, w = grid
    y = x.clone()
    y[:, prefix:] = 0
    for token in range(h * w):
        for branch in range(weights.shape[-1]):
            steps = range(-branch, branch + 1) if nested else sorted({-branch, 0, branch})
            for down in steps:
                for right in steps:
                    row, column = token // w + down, token % w + right
                    if 0 <= row < h and 0 <= column < w:
                        share = weights[:, token, branch, None] / len(steps) ** 2
                        y[:, prefix + token] += share * x[:, prefix + row * w + column]
    return y


def operands(grid, prefix, channels, branches, dtype=torch.float64, images=2):
    generator = torch.Generator().manual_seed(grid[0] + channels)
    count = grid[0] * grid[1]
    x = torch.randn(images, prefix + count, channels, dtype=torch.float64, generator=generator)
    weights = torch.randn(images, count, branches, dtype=torch.float64, generator=generator).softmax(-1)
    gradient = torch.randn(x.shape, dtype=torch.float64, generator=generator)
    return x.to(dtype).requires_grad_(), weights.to(dtype).requires_grad_(), gradient.to(dtype)


@pytest.mark.parametrize("form", [shifted, banded, dense])
@pytest.mark.parametrize("shape", SHAPES[:6], ids=str)
def test_plain_forms_follow_the_definition(form, shape):
    grid, prefix, _, branches, nested = shape
    x, weights, _ = operands(grid, prefix, 2, branches, images=1)
    torch.testing.assert_close(
        form(x, weights, grid, prefix=prefix, nested=nested), by_hand(x, weights, grid, prefix, nested)
    )


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 9), st.sampled_from([0, 1, 5]), st.integers(1, 5), st.booleans(), st.booleans()
)
def test_forms_agree_with_their_gradients(h, w, prefix, branches, nested, shared):
    x, weights, gradient = operands((h, w), prefix, 3, branches)
    weights = weights[:1].detach().requires_grad_() if shared else weights
    found = []
    for form in (shifted, banded, dense):
        y = form(x, weights, (h, w), prefix=prefix, nested=nested)
        found.append((y, *torch.autograd.grad(y, (x, weights), gradient)))
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])
    dx, dweights = shifted_backward(gradient, x, weights, (h, w), prefix=prefix, nested=nested)
    torch.testing.assert_close((dx, dweights.sum_to_size(weights.shape)), found[0][1:])


def test_large_grid():
    x, weights, gradient = operands((32, 32), 1, 2, 4, images=1)
    found = [form(x, weights, (32, 32), prefix=1) for form in (shifted, banded)]
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(*(torch.autograd.grad(y, (x, weights), gradient) for y in found))


@pytest.mark.parametrize("form", [shifted, banded])
def test_first_and_second_derivatives(form):
    x, weights, _ = operands((3, 4), 1, 2, 3, images=1)

    def run(x, weights):
        return form(x, weights, (3, 4), prefix=1, nested=True)

    assert torch.autograd.gradcheck(run, (x, weights))
    assert torch.autograd.gradgradcheck(run, (x, weights))


def test_choice_of_the_form():
    cpu = torch.device("cpu")
    assert token_pooling.choose(cpu, torch.float32, (14, 14), 4)[0] == "banded"
    assert token_pooling.choose(torch.device("meta"), torch.float32, (14, 14), 4)[0] == "shifted"
    assert token_pooling.choose(cpu, torch.float32, (14, 14), 20)[0] == "shifted"
    x, weights, _ = operands((3, 4), 1, 2, 3)
    over_images = torch.vmap(lambda x, weights: token_pooling.pool(x[None], weights[None], (3, 4), prefix=1)[0])
    torch.testing.assert_close(over_images(x, weights), shifted(x, weights, (3, 4), prefix=1))


def test_autocast_keeps_the_dtype_and_runs_in_lower_precision():
    x, weights, _ = operands((7, 7), 1, 5, 4, torch.float32)
    exact = shifted(x, weights, (7, 7), prefix=1)
    with torch.autocast("cpu", torch.bfloat16):
        found = token_pooling.pool(x, weights, (7, 7), prefix=1)
    assert found.dtype == torch.float32
    assert 1e-4 < (found - exact).abs().max() / exact.abs().max() < 2e-2, "float32 products would be closer"


def test_the_operator_without_triton_and_in_a_graph(monkeypatch):
    """On CPU tensors the compiled kernel cannot run, as on a GPU without a compiler: it warns once."""
    pytest.importorskip("triton")
    monkeypatch.setattr(availability, "_FAILURES", {})
    x, weights, gradient = operands((3, 4), 1, 2, 3)

    def run(x, weights):
        return token_pooling_triton.pool(x, weights, 4, 1, False)

    expected = shifted(x, weights, (3, 4), prefix=1)
    gradients = torch.autograd.grad(expected, (x, weights), gradient)
    with pytest.warns(UserWarning, match="token_pooling runs without its kernel, since Triton failed"):
        torch.testing.assert_close(run(x, weights), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for form in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
            torch.testing.assert_close(torch.autograd.grad(form(x, weights), (x, weights), gradient), gradients)
        assert torch.autograd.gradgradcheck(run, (x, weights))
    torch.library.opcheck(token_pooling_triton.pool, (x, weights, 4, 1, False))


def test_the_table_of_pairs_of_tokens_is_made_of_bytes():
    """128 x 128 tokens have 2.7e8 pairs: tables of 64-bit numbers took 9 GiB."""
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            result = function(*arguments, **(keywords or {}))
            sizes.append(result.untyped_storage().size())
            return result

    with Sizes():
        token_pooling_triton._rings(torch.zeros(1, 21 * 33 + 2, 1), torch.zeros(1, 21 * 33, 3), 33, 2, False)
    assert max(sizes) <= 1.05 * (21 * 33 + 2) ** 2


def kernel_errors(device="cpu", dtype=torch.float32, shapes=SHAPES):
    """The largest error of the result and of both gradients, relative to the largest value."""
    found = []
    for grid, prefix, channels, branches, nested in shapes:
        x, weights, gradient = operands(grid, prefix, channels, branches)
        truth = shifted(x, weights, grid, prefix=prefix, nested=nested)
        truths = (truth, *torch.autograd.grad(truth, (x, weights), gradient))
        x, weights = (tensor.detach().to(device, dtype).requires_grad_() for tensor in (x, weights))
        y = token_pooling_triton.pool(x, weights, grid[1], prefix, nested)
        results = (y, *torch.autograd.grad(y, (x, weights), gradient.to(device, dtype)))
        pairs = zip(results, truths, strict=True)
        found.append(max(float((a.cpu() - b).abs().max() / b.abs().max().clamp_min(1e-9)) for a, b in pairs))
    assert not availability._FAILURES, availability._FAILURES
    return found


def test_the_kernel_in_the_interpreter():
    pytest.importorskip("triton")
    run = subprocess.run(
        [sys.executable, __file__], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    errors = json.loads(run.stdout)
    assert len(errors["float32"]) == len(SHAPES) and max(errors["float32"]) < 1e-5
    assert max(errors["float16"]) < 2e-2  # the interpreter has no products of bfloat16
    assert errors["gradcheck"]


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=str)
def test_the_kernel_on_a_gpu(dtype, tolerance):
    assert max(kernel_errors("cuda", dtype)) < tolerance


def gradcheck():
    """Finite differences in float32, which the kernel's products use: a large step, a loose tolerance."""
    x, weights, _ = operands((3, 4), 1, 2, 3, torch.float32, images=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.autograd.gradcheck(
            lambda x, weights: token_pooling_triton.pool(x, weights, 4, 1, False), (x, weights), eps=1e-2, atol=1e-3
        )


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "float32": kernel_errors(),
                "float16": kernel_errors(dtype=torch.float16, shapes=SHAPES[3:5]),
                "gradcheck": gradcheck(),
            }
        )
    )
