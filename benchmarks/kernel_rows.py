"""Rows of `benchmarks/kernels.py` about single operators: exactness against float64, and time inside a CUDA graph."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.core.anatomy import TokenLayout
from vitlab.kernels import (
    attention,
    attention_diversity,
    attention_statistics,
    availability,
    token_pooling,
    token_pooling_plain,
    twin_products,
)
from vitlab.losses.attention_diversification import attention_diversification
from vitlab.modules.token_aware_pooling import TokenAwarePooling

Row = tuple[str, Callable[[], dict[str, Any]]]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
#: rates in rows of kernels, and their units
UNITS = {"terabytes_per_second": "TB/s", "teraflops": "TFLOP/s"}


# -- exactness ------------------------------------------------------------------------------------------------------


def exactness(options: argparse.Namespace) -> Iterator[Row]:
    """Each operator in float32 and bf16 against float64, forward and backward."""
    grids = [((3, 4), 0)] if options.smoke else [((14, 14), 1), ((7, 9), 5), ((32, 32), 0)]
    for dtype in TOLERANCE:
        for grid, prefix in grids:
            for nested in (False, True):
                name = f"pooling {grid[0]}x{grid[1]}+{prefix}{', nested' if nested else ''}, {dtype}"
                yield name, partial(_pooling_error, options.device, dtype, grid, prefix, nested)
        if options.device == "cpu" and dtype == torch.bfloat16:
            return  # the interpreter has no products of bfloat16
        for tokens in (9,) if options.smoke else (50, 197):
            for released in (False, True):
                for averaged in (False, True):
                    name = f"ADL {tokens} tokens, released {released}, averaged {averaged}, {dtype}"
                    if dtype != torch.float32 or tokens <= attention_diversity.MAXIMUM_KEYS_SINGLE:
                        yield name, partial(_diversity_error, options.device, dtype, tokens, released, averaged)
                    if dtype == torch.bfloat16:
                        name = f"attention with {name}"
                        yield name, partial(_attention_error, options.device, dtype, tokens, released, averaged)
        for tokens in (9,) if options.smoke else (1, 49, 197, 1024):
            yield f"statistics {tokens} tokens, {dtype}", partial(_statistics_error, options.device, dtype, tokens)
            yield f"twin products {tokens} tokens, {dtype}", partial(_twins_error, options.device, dtype, tokens)


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
    return _compare(dtype, (found, *torch.autograd.grad(found, inputs, gradient)), truths)


def _diversity_error(device: str, dtype: torch.dtype, tokens: int, released: bool, averaged: bool) -> dict[str, Any]:
    generator = torch.Generator(device).manual_seed(0)
    q, k = (torch.randn(4, tokens, 6, 64, device=device, generator=generator).to(dtype) for _ in range(2))
    q, k = q + 1, torch.cat((k[:, :2] + 1, k[:, 2:]), 1)  # two keys pass the threshold in the mean over heads and rows
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
    return _compare(dtype, (found, *torch.autograd.grad(found, inputs)), truths)


def _attention_error(device: str, dtype: torch.dtype, tokens: int, released: bool, averaged: bool) -> dict[str, Any]:
    """Output, loss and the gradients of queries, keys, values and bias of attention together with ADL."""
    generator = torch.Generator(device).manual_seed(0)
    q, k, v = (torch.randn(4, tokens, 6, 64, device=device, generator=generator) for _ in range(3))
    q, k = 2 * (q + 1), torch.cat((k[:, :2] + 1, k[:, 2:]), 1)  # as in `_diversity_error`
    inputs = [x.to(dtype).transpose(1, 2).requires_grad_() for x in (q, k, v)]
    inputs.append(torch.randn(1, 6, tokens, tokens, device=device, generator=generator).requires_grad_())
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    maps = (exact[0] @ exact[1].mT * 0.125 + exact[3]).softmax(-1)
    form, heads = "released" if released else "paper", "mean" if averaged else "each"
    value = attention_diversification([maps], form=form, heads=heads)  # type: ignore[arg-type]
    truth = (maps @ exact[2], value * (1 + 1e-6) if released else value)
    settings = {"scale": 0.125, "bias": inputs[3], "tau": 2.0, "released": released, "averaged": averaged}
    found = attention.attend_diversified(*inputs[:3], **settings)  # type: ignore[arg-type]
    gradient = torch.randn(found[0].shape, device=device, generator=generator)

    def gradients(results: tuple[Tensor, Tensor], operands: list[Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad((results[0] * gradient).sum() + 1000 * results[1], operands)

    return _compare(dtype, (*found, *gradients(found, inputs)), (*truth, *gradients(truth, exact)))


def _attention(device: str, dtype: torch.dtype, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys, and the map of the rounded operands in float64."""
    generator = torch.Generator(device).manual_seed(0)
    q, k = (torch.randn(4, tokens, 3, 64, device=device, generator=generator).to(dtype) for _ in range(2))
    q, k = (2 * q).transpose(1, 2), k.transpose(1, 2)
    return q, k, (q.double() @ k.double().mT * 0.125).softmax(-1)


@torch.no_grad()
def _statistics_error(device: str, dtype: torch.dtype, tokens: int) -> dict[str, Any]:
    q, k, maps = _attention(device, dtype, tokens)
    place = torch.rand(1, tokens, 2, device=device)
    wanted = {"entropy": None, "squares": None, "distance": (place, place), "received": None}
    found = attention_statistics.fused(q, k, 0.125, None, wanted)
    exact = attention_statistics.plain(maps, wanted)
    floor = 1.0 if tokens == 1 else 0.0  # the entropy and the distances of one token are 0
    truths = [exact[name] for name in found]
    return _compare(torch.float32, found.values(), truths, floor)


@torch.no_grad()
def _twins_error(device: str, dtype: torch.dtype, tokens: int) -> dict[str, Any]:
    q, k, maps = _attention(device, dtype, tokens)
    found, exact = twin_products.fused(q, k, 0.125), twin_products.plain(maps)
    return _compare(torch.float32, [found], [exact])


def _compare(
    dtype: torch.dtype, found: Iterable[Tensor], truths: Iterable[Tensor], floor: float = 0.0
) -> dict[str, Any]:
    """The largest errors relative to the largest value of each tensor; a tensor of zeros checks nothing."""
    pairs = [(a.detach().double(), b.detach().double()) for a, b in zip(found, truths, strict=True)]
    largest = [max(float(b.abs().max()), floor) for _, b in pairs]
    errors = [float((a - b).abs().max()) / max(size, 1e-30) for (a, b), size in zip(pairs, largest, strict=True)]
    passed = max(errors) <= TOLERANCE[dtype] and min(largest) > 0
    return {"passed": passed, "errors": [f"{error:.1e}" for error in errors]}


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
    """Median and range of the time of `run`, captured in a CUDA graph of `inner` calls; on a CPU of one call."""
    if not torch.cuda.is_available():
        start = time.perf_counter()
        run()
        return _spread([1e6 * (time.perf_counter() - start)])

    def several() -> None:
        for _ in range(inner):
            run()

    replay = captured(several)
    replay()
    times = []
    for _ in range(repeats):
        start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start_event.record()
        replay()
        end_event.record()
        end_event.synchronize()
        times.append(1e3 * start_event.elapsed_time(end_event) / inner)
    return _spread(times)


def _spread(times: list[float]) -> dict[str, float]:
    return {"microseconds": statistics.median(times), "fastest": min(times), "slowest": max(times)}


def kernel_times(options: argparse.Namespace) -> Iterator[Row]:
    """Ceilings of the card, then each kernel at the shapes of ViT-S/16 (statistics: DeiT-Ti), batch 256."""
    small, device = options.smoke or options.device == "cpu", options.device
    batch = 1 if small else 256
    yield "copy of 256 MiB", partial(_copy, device, 1 << 10 if small else 1 << 27)
    for dtype in (torch.bfloat16, torch.float32):
        yield f"matrix product 8192, {dtype}", partial(_matrix_product, device, dtype, 16 if small else 8192)
    for name, forms in (("triton", ()), ("matrix products", ("token_pooling",))):
        for direction in ("forward", "forward + backward"):
            yield f"pooling, {name}, {direction}", partial(_pooling_time, device, forms, direction, (14, 14), batch, 1)
        yield f"TAP module, {name}, forward + backward", partial(_module_time, device, forms, batch)
    for averaged in (True, False):
        for direction in ("forward", "forward + backward"):
            heads = "heads averaged" if averaged else "per head"
            yield f"ADL, {heads}, {direction}", partial(_diversity_time, device, averaged, direction, batch)
    for tokens, images, heads in ((197, batch, 6), (65, 2 * batch, 3)):
        for form in (
            "scaled_dot_product_attention",
            "attend",
            "attend + ADL, heads averaged",
            "attend + ADL, per head",
        ):
            name = f"{form}, {tokens} tokens, forward + backward"
            yield name, partial(_attention_time, device, form, images, heads, tokens)
    for dtype in (torch.float32, torch.bfloat16):
        if device == "cuda" or dtype == torch.float32:
            for names in (("entropy",), attention_statistics.NAMES):
                name = f"statistics ({', '.join(names)}), {dtype}"
                yield name, partial(_statistics_time, device, dtype, names, batch)
            yield f"twin products, {dtype}", partial(_twins_time, device, dtype, batch)
    grid = (4, 4) if small else (64, 64)
    for name, forms in (("triton", ()), ("shifts", ("token_pooling",))):
        yield (
            f"pooling {grid[0]}x{grid[1]}, batch 16, {name}, forward + backward",
            partial(_pooling_time, device, forms, "forward + backward", grid, 16, 0),
        )


def _copy(device: str, numbers: int) -> dict[str, Any]:
    x = torch.empty(numbers, dtype=torch.bfloat16, device=device)
    y = torch.empty_like(x)
    row = microseconds(lambda: y.copy_(x), inner=5)
    return {**row, "terabytes_per_second": 2 * x.nbytes / row["microseconds"] / 1e6}


def _matrix_product(device: str, dtype: torch.dtype, side: int) -> dict[str, Any]:
    a, b = (torch.randn(side, side, dtype=dtype, device=device) for _ in range(2))
    row = microseconds(lambda: a @ b, inner=3)
    return {**row, "teraflops": 2 * side**3 / row["microseconds"] / 1e6}


def _pooling_time(
    device: str, disabled: tuple[str, ...], direction: str, grid: tuple[int, int], batch: int, prefix: int
) -> dict[str, Any]:
    count = grid[0] * grid[1]
    x = torch.randn(batch, prefix + count, 384, device=device, dtype=torch.bfloat16, requires_grad=True)
    weights = torch.randn(batch, count, 4, device=device).softmax(-1).bfloat16().requires_grad_()
    gradient = torch.randn_like(x)

    def forward(x: Tensor, weights: Tensor) -> Tensor:
        return token_pooling.pool(x, weights, grid, prefix=prefix)

    with availability.without_kernels(*disabled):
        compiled = torch.compile(forward) if device == "cuda" else forward

        def run() -> None:
            y = compiled(x, weights)
            if direction != "forward":
                torch.autograd.grad(y, (x, weights), gradient)

        run()
        row = microseconds(run)
    moved = x.nbytes * (2 if direction == "forward" else 5)  # read x, write y; then read x and dy, write dx
    return {**row, "terabytes_per_second": moved / row["microseconds"] / 1e6}


def _module_time(device: str, disabled: tuple[str, ...], batch: int) -> dict[str, Any]:
    part = TokenAwarePooling(384, TokenLayout((14, 14), prefix=1)).to(device).train()
    x = torch.randn(batch, 197, 384, device=device, dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn_like(x)

    def forward(x: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            y: Tensor = part(x)
        return y

    with availability.without_kernels(*disabled):
        compiled = torch.compile(forward) if device == "cuda" else forward
        inputs = (x, *part.parameters())

        def run() -> None:
            torch.autograd.grad(compiled(x), inputs, gradient)

        run()
        return microseconds(run)


def _diversity_time(device: str, averaged: bool, direction: str, batch: int) -> dict[str, Any]:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    qkv = torch.randn(batch, 197, 3, 6, 64, device=device, dtype=dtype)
    q, k = (qkv[:, :, i].transpose(1, 2).requires_grad_() for i in range(2))
    settings = {"scale": 0.125, "bias": None, "tau": 2.0, "released": False, "averaged": averaged}

    def run() -> None:
        value = attention_diversity.diversity(q, k, **settings)  # type: ignore[arg-type]
        if direction != "forward":
            torch.autograd.grad(value, (q, k))

    run()
    row = microseconds(run, inner=10)
    products = 1 if direction == "forward" else 5 if averaged else 4
    flops = products * 2 * batch * 6 * 197 * 197 * 64
    return {**row, "teraflops": flops / row["microseconds"] / 1e6}


def _attention_time(device: str, form: str, batch: int, heads: int, tokens: int) -> dict[str, Any]:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    qkv = torch.randn(batch, tokens, 3, heads, 64, device=device, dtype=dtype)
    q, k, v = (x.detach().requires_grad_() for x in qkv.permute(2, 0, 3, 1, 4))
    gradient = torch.randn(batch, tokens, heads, 64, device=device, dtype=dtype).transpose(1, 2)

    def run() -> None:
        if form == "scaled_dot_product_attention":
            results: tuple[Tensor, ...] = (F.scaled_dot_product_attention(q, k, v),)
        elif form == "attend":
            results = (attention.attend(q, k, v, scale=0.125),)
        else:
            settings = {"tau": 2.0, "released": False, "averaged": "averaged" in form}
            results = attention.attend_diversified(q, k, v, scale=0.125, bias=None, **settings)  # type: ignore[arg-type]
        given = (gradient, *(torch.ones_like(each) for each in results[1:]))
        torch.autograd.grad(results, (q, k, v), given)

    run()
    row = microseconds(run, inner=5)
    return {**row, "teraflops": 7 * 2 * batch * heads * tokens**2 * 64 / row["microseconds"] / 1e6}


def _qk(device: str, dtype: torch.dtype, batch: int) -> tuple[Tensor, Tensor]:
    qkv = torch.randn(batch, 197, 3, 3, 64, device=device, dtype=dtype)
    return qkv[:, :, 0].transpose(1, 2), qkv[:, :, 1].transpose(1, 2)


@torch.no_grad()
def _statistics_time(device: str, dtype: torch.dtype, names: tuple[str, ...], batch: int) -> dict[str, Any]:
    (q, k), place = _qk(device, dtype, batch), torch.rand(1, 197, 2, device=device)
    wanted = {name: (place, place) if name == "distance" else None for name in names}

    def run() -> None:
        attention_statistics.fused(q, k, 0.125, None, wanted)

    run()
    row = microseconds(run, inner=10)
    flops = (2 if "received" in names else 1) * 2 * batch * 3 * 197 * 197 * 64
    return {**row, "teraflops": flops / row["microseconds"] / 1e6}


@torch.no_grad()
def _twins_time(device: str, dtype: torch.dtype, batch: int) -> dict[str, Any]:
    q, k = _qk(device, dtype, 2 * batch)

    def run() -> None:
        twin_products.fused(q, k, 0.125)

    run()
    row = microseconds(run, inner=10)
    return {**row, "teraflops": 2 * 2 * batch * 3 * 197 * 197 * 64 / row["microseconds"] / 1e6}
