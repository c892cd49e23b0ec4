"""Rows of `benchmarks/kernels.py` about single operators: exactness against float64, and time inside a CUDA graph."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vitlab.core.anatomy import TokenLayout
from vitlab.kernels import attention_diversity, availability, token_pooling, token_pooling_plain
from vitlab.losses.attention_diversification import attention_diversification
from vitlab.modules.token_aware_pooling import TokenAwarePooling

Row = tuple[str, Callable[[], dict[str, Any]]]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


# -- exactness ------------------------------------------------------------------------------------------------------


def exactness(options: argparse.Namespace) -> Iterator[Row]:
    """Each operator in float32 and bf16 against float64, forward and backward."""
    grids = [((3, 4), 0)] if options.smoke else [((14, 14), 1), ((7, 9), 5), ((32, 32), 0)]
    for dtype in TOLERANCE:
        for grid, prefix in grids:
            for nested in (False, True):
                name = f"pooling {grid[0]}x{grid[1]}+{prefix}{', nested' if nested else ''}, {dtype}"
                yield name, partial(_pooling_error, options.device, dtype, grid, prefix, nested)
        for tokens in (9,) if options.smoke else (50, 197):
            for released in (False, True):
                for averaged in (False, True):
                    name = f"ADL {tokens} tokens, released {released}, averaged {averaged}, {dtype}"
                    yield name, partial(_diversity_error, options.device, dtype, tokens, released, averaged)


def _pooling_error(device: str, dtype: torch.dtype, grid: tuple[int, int], prefix: int, nested: bool) -> dict[str, Any]:
    generator = torch.Generator(device).manual_seed(0)
    count = grid[0] * grid[1]
    x = torch.randn(4, prefix + count, 96, device=device, generator=generator).to(dtype)
    weights = torch.randn(4, count, 4, device=device, generator=generator).softmax(-1).to(dtype)
    gradient = torch.randn(x.shape, device=device, generator=generator).to(dtype)
    exact = [tensor.double().requires_grad_() for tensor in (x, weights)]
    truth = token_pooling_plain.shifted(*exact, grid, prefix=prefix, nested=nested)
    truths = (truth, *torch.autograd.grad(truth, exact, gradient.double()))
    inputs = [tensor.requires_grad_() for tensor in (x, weights)]
    found = token_pooling.pool(*inputs, grid, prefix=prefix, nested=nested)
    return _compare(dtype, (found, *torch.autograd.grad(found, inputs, gradient)), truths, "token_pooling")


def _diversity_error(device: str, dtype: torch.dtype, tokens: int, released: bool, averaged: bool) -> dict[str, Any]:
    generator = torch.Generator(device).manual_seed(0)
    q, k = (torch.randn(4, tokens, 6, 64, device=device, generator=generator).to(dtype) for _ in range(2))
    q, k = (2 * q).transpose(1, 2), k.transpose(1, 2)
    exact = [tensor.double().requires_grad_() for tensor in (q, k)]
    maps = (exact[0] @ exact[1].mT * 0.125).softmax(-1)
    form, heads = "released" if released else "paper", "mean" if averaged else "each"
    truth = attention_diversification([maps], form=form, heads=heads)  # type: ignore[arg-type]
    truth = truth * (1 + 1e-6) if released else truth
    truths = (truth, *torch.autograd.grad(truth, exact))
    inputs = [tensor.requires_grad_() for tensor in (q, k)]
    settings = {"scale": 0.125, "bias": None, "tau": 2.0, "released": released, "averaged": averaged}
    found = attention_diversity.diversity(*inputs, **settings)  # type: ignore[arg-type]
    return _compare(dtype, (found, *torch.autograd.grad(found, inputs)), truths, "attention_diversity")


def _compare(
    dtype: torch.dtype, found: tuple[Tensor, ...], truths: tuple[Tensor, ...], operator: str
) -> dict[str, Any]:
    """The largest errors relative to the largest value of each tensor."""
    errors = [
        float((a.detach().double() - b.detach()).abs().max() / b.detach().abs().max().clamp_min(1e-30))
        for a, b in zip(found, truths, strict=True)
    ]
    failure = availability._FAILURES.get(operator, "")
    return {"passed": max(errors) <= TOLERANCE[dtype], "errors": [f"{error:.1e}" for error in errors]} | (
        {"triton_failed": failure} if failure else {}
    )


# -- time of kernels ------------------------------------------------------------------------------------------------


def captured(run: Callable[[], object]) -> Callable[[], object]:
    """Returns a function that replays a CUDA graph of `run`."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()

    def replay(kept: object = run) -> None:
        """Replay; the graph reads the tensors of `run`, which must not be freed."""
        graph.replay()

    return replay


def microseconds(run: Callable[[], object], repeats: int = 7, inner: int = 20) -> dict[str, float]:
    """Median and range of the time of `run`, captured in a CUDA graph of `inner` calls."""

    def several() -> None:
        for _ in range(inner):
            run()

    replay = captured(several)
    replay()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        replay()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end) / inner)
    return {"microseconds": statistics.median(times), "fastest": min(times), "slowest": max(times)}


def kernel_times(options: argparse.Namespace) -> Iterator[Row]:
    """Ceilings of the card, then each kernel at the shapes of ViT-S/16, batch 256, bf16."""
    if options.device != "cuda":
        return
    yield "copy of 256 MiB", _copy
    yield "matrix product 8192, bf16", _matrix_product
    for name, forms in (("triton", ()), ("matrix products", ("token_pooling",))):
        for direction in ("forward", "forward + backward"):
            yield f"pooling, {name}, {direction}", partial(_pooling_time, forms, direction)
        yield f"TAP module, {name}, forward + backward", partial(_module_time, forms)
    for averaged in (True, False):
        for direction in ("forward", "forward + backward"):
            heads = "heads averaged" if averaged else "per head"
            yield f"ADL, {heads}, {direction}", partial(_diversity_time, averaged, direction)
    yield (
        "pooling 64x64, batch 16, triton, forward + backward",
        partial(_pooling_time, (), "forward + backward", (64, 64), 16, 0),
    )
    yield (
        "pooling 64x64, batch 16, shifts, forward + backward",
        partial(_pooling_time, ("token_pooling",), "forward + backward", (64, 64), 16, 0),
    )


def _copy() -> dict[str, Any]:
    x = torch.empty(1 << 27, dtype=torch.bfloat16, device="cuda")
    y = torch.empty_like(x)
    row = microseconds(lambda: y.copy_(x), inner=5)
    return {**row, "terabytes_per_second": 2 * x.nbytes / row["microseconds"] / 1e6}


def _matrix_product() -> dict[str, Any]:
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    row = microseconds(lambda: a @ b, inner=3)
    return {**row, "teraflops": 2 * 8192**3 / row["microseconds"] / 1e6}


def _pooling_time(
    disabled: tuple[str, ...], direction: str, grid: tuple[int, int] = (14, 14), batch: int = 256, prefix: int = 1
) -> dict[str, Any]:
    count = grid[0] * grid[1]
    x = torch.randn(batch, prefix + count, 384, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weights = torch.randn(batch, count, 4, device="cuda").softmax(-1).bfloat16().requires_grad_()
    gradient = torch.randn_like(x)

    def forward(x: Tensor, weights: Tensor) -> Tensor:
        return token_pooling.pool(x, weights, grid, prefix=prefix)

    with availability.without_kernels(*disabled):
        compiled = torch.compile(forward)

        def run() -> None:
            y = compiled(x, weights)
            if direction != "forward":
                torch.autograd.grad(y, (x, weights), gradient)

        run()
        row = microseconds(run)
    moved = x.nbytes * (2 if direction == "forward" else 5)  # read x, write y; then read x and dy, write dx
    return {**row, "terabytes_per_second": moved / row["microseconds"] / 1e6}


def _module_time(disabled: tuple[str, ...]) -> dict[str, Any]:
    part = TokenAwarePooling(384, TokenLayout((14, 14), prefix=1)).cuda().train()
    x = torch.randn(256, 197, 384, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn_like(x)

    def forward(x: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            y: Tensor = part(x)
        return y

    with availability.without_kernels(*disabled):
        compiled = torch.compile(forward)
        inputs = (x, *part.parameters())

        def run() -> None:
            torch.autograd.grad(compiled(x), inputs, gradient)

        run()
        return microseconds(run)


def _diversity_time(averaged: bool, direction: str) -> dict[str, Any]:
    qkv = torch.randn(256, 197, 3, 6, 64, device="cuda", dtype=torch.bfloat16)
    q, k = (qkv[:, :, i].transpose(1, 2).requires_grad_() for i in range(2))
    settings = {"scale": 0.125, "bias": None, "tau": 2.0, "released": False, "averaged": averaged}

    def run() -> None:
        value = attention_diversity.diversity(q, k, **settings)  # type: ignore[arg-type]
        if direction != "forward":
            torch.autograd.grad(value, (q, k))

    run()
    row = microseconds(run, inner=10)
    products = 1 if direction == "forward" else 5 if averaged else 4
    flops = products * 2 * 256 * 6 * 197 * 197 * 64
    return {**row, "teraflops": flops / row["microseconds"] / 1e6}
