"""Hessian spectra compared with PyHessian's method: Hessian-vector products, accuracy, wall-clock time.

    python benchmarks/hessian.py [--model EXPRESSION] [--device cuda] [--images FILE] [--mini-batches 4] [--json FILE]
        [--time-only]

The reference method: power iteration with deflation, at most 100 iterations, until the Rayleigh quotient changes by
less than 1e-3, one mini-batch at a time, each product a backward pass through the retained graph of the gradient.
`--images` is a safetensors file with `images` (N, 3, h, w) in the model's input format and `labels` (N,); by default
both are random.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
import timing
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitlab import zoo
from vitlab.core.store import read_tensors
from vitlab.instruments import measure

TINY = "timm/vit_tiny_patch16_224(img_size=32, patch_size=4, embed_dim=64, depth=4, num_heads=4, num_classes=10)"
COUNT, SIZE, TARGET = 5, 16, 0.25


def power_iteration(
    model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
) -> tuple[list[float], int]:
    """Returns the eigenvalues of largest magnitude, and the number of products."""
    parameters = list(model.parameters())
    gradient = torch.autograd.grad(F.cross_entropy(model(images), labels), parameters, create_graph=True)
    values: list[float] = []
    vectors: list[list[Tensor]] = []
    products = 0
    for _ in range(COUNT):
        vector = [torch.randn(p.shape, generator=generator).to(p) for p in parameters]
        value, before = float("nan"), float("nan")
        for _ in range(100):
            for other in vectors:
                share = inner(vector, other)
                vector = [v - share * o for v, o in zip(vector, other, strict=True)]
            vector = unit(vector)
            image = list(torch.autograd.grad(gradient, parameters, vector, retain_graph=True))
            products, before, value = products + 1, value, float(inner(vector, image))
            vector = unit(image)
            if abs(value - before) / (abs(before) + 1e-6) < 1e-3:  # false in the first iteration, which is NaN
                break
        values.append(value)
        vectors.append(vector)
    return sorted(values, key=lambda v: -abs(v)), products


def inner(first: list[Tensor], second: list[Tensor]) -> Tensor:
    return torch.stack([(a * b).sum() for a, b in zip(first, second, strict=True)]).sum()


def unit(vector: list[Tensor]) -> list[Tensor]:
    length = inner(vector, vector).sqrt() + 1e-6
    return [v / length for v in vector]


def by_power_iteration(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> tuple[np.ndarray, list[int]]:
    generator = torch.Generator().manual_seed(0)
    with sdpa_kernel(SDPBackend.MATH):
        found = [power_iteration(model, images, labels, generator) for images, labels in batches]
    return np.array([values for values, _ in found]), [products for _, products in found]


def errors(values: np.ndarray, exact: np.ndarray) -> list[float]:
    """Returns the largest relative error of each mini-batch."""
    return [float(row) for row in (np.abs(values - exact) / np.abs(exact)).max(1)]


def products_for(model: nn.Module, batch: tuple[Tensor, Tensor], exact: np.ndarray, target: float) -> int:
    """Returns the fewest products, by bisection, with a largest error of at most `target`."""
    low, high = COUNT - 1, 60
    while high - low > 1:
        middle = (low + high) // 2
        found = measure("hessian_spectrum", model, [batch], l2="none", limit=middle, tolerance=0.0)
        good = errors(found.values["eigenvalues"], exact[None])[0] <= target
        low, high = (low, middle) if good else (middle, high)
    return high


def accuracy(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """Returns products and errors of both methods, compared with a long run from another starting point."""
    exact = measure("hessian_spectrum", model, batches, l2="none", tolerance=1e-10, seed=99, basis=60).values[
        "eigenvalues"
    ]
    plain, plain_products = by_power_iteration(model, batches)
    ours = measure("hessian_spectrum", model, batches, l2="none", together=1)
    plain_errors = errors(plain, exact)
    same = [products_for(model, b, e, w) for b, e, w in zip(batches, exact, plain_errors, strict=True)]
    default = ours.values["products"].tolist()
    return {
        "eigenvalues": exact.tolist(),
        "power iteration": {"products": plain_products, "errors": plain_errors},
        "vitlab": {"products": default, "errors": errors(ours.values["eigenvalues"], exact)},
        "ratio of products": statistics.median(a / b for a, b in zip(default, plain_products, strict=True)),
        "products for the same accuracy": same,
        "ratio for the same accuracy": statistics.median(a / b for a, b in zip(same, plain_products, strict=True)),
        "target": TARGET,
    }


def data(options: argparse.Namespace, model: Any) -> list[tuple[Tensor, Tensor]]:
    number = SIZE * options.mini_batches
    if options.images:
        tensors, _ = read_tensors(options.images)
        images, labels = tensors["images"][:number].float(), tensors["labels"][:number].long()
    else:
        generator, side = torch.Generator().manual_seed(0), model.patch_embed.img_size
        images = torch.randn(number, 3, *side, generator=generator)
        labels = torch.randint(model.num_classes, (number,), generator=generator)
    images, labels = images.to(options.device), labels.to(options.device)
    return list(zip(images.split(SIZE), labels.split(SIZE), strict=True))


def main() -> None:
    """Print the tables, and write them as JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=TINY)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", default="")
    parser.add_argument("--mini-batches", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--time-only", action="store_true", help="skip products and errors")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    model = zoo.load(options.model, seed=0).to(options.device).eval()
    batches = data(options, model)
    found = {} if options.time_only else accuracy(model, batches)
    for name, value in found.items():
        print(f"{name}: {value}")
    timing.write(
        options.json, {"model": options.model, **found}
    )  # timing takes longest: store this in case it is interrupted
    runs: dict[str, Any] = {"power iteration": lambda: by_power_iteration(model, batches)}
    for together in (1, 2, 4):
        runs[f"vitlab, {together} at once"] = lambda together=together: measure(
            "hessian_spectrum", model, batches, l2="none", together=together
        )
    measure("hessian_spectrum", model, batches[:1], l2="none", limit=COUNT)  # a full run would be slow
    seconds = timing.interleaved(runs, options.repeats, device=options.device, warm=True)
    table = timing.ratios(seconds, "power iteration")
    timing.show(f"top {COUNT} of {len(batches)} mini-batches of {SIZE}", table)
    timing.write(options.json, {"model": options.model, **found, "time": table, "rounds": options.repeats})


if __name__ == "__main__":
    main()
