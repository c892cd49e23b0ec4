"""Hessian max eigenvalue spectrum: sharpness and convexity of the loss (HDVW Figs. 1c, 4, 6, 7b, 12c).

    H = ∇²_w L(w; mini-batch), its k eigenvalues of largest |λ|, pooled over mini-batches of augmented data

Large eigenvalues indicate a sharp loss, negative eigenvalues a non-convex loss. To compare early and late training,
measure each snapshot.

Shape legend: K mini-batches at once, B batch, C classes, P weights in total, k eigenvalues per mini-batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitlab.core.bounds import Range, Seed, Weight
from vitlab.core.errors import VitlabError
from vitlab.core.machine_memory import check_memory
from vitlab.core.measurement import Card, Measurement
from vitlab.core.pooling import derive
from vitlab.core.provenance import provenance
from vitlab.core.step_cache import inside, step
from vitlab.instruments.shared.curvature import Product, largest_eigenvalues
from vitlab.instruments.shared.loss_surface import (
    L2,
    Pair,
    Weights,
    cross_entropy,
    l2_term,
    logits_at,
    seeded_mode,
    soft_target_batches,
    split_mini_batches,
    weights_of,
)

CARD = Card(
    title="Largest eigenvalues of the loss Hessian, negative and positive",
    paper="HDVW Figs. 1c, 4, 6, 7b, 12c, C.3–C.7, F.1b",
    cost="15 to 40 products with the Hessian per mini-batch, each about 6 forwards",
    inputs="augmented training images",
    passes="several",
)

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


#: NEP and APE (HDVW App. C, Fig. C.5) are computed from the eigenvalues of all mini-batches.
_POOLING = {
    **dict.fromkeys(("eigenvalues", "residuals", "converged", "loss", "products"), ("concatenate", "mini_batch")),
    "negative_proportion": ("negative_proportion", "eigenvalues"),
    "positive_average": ("positive_average", "eigenvalues"),
}


def hessian_products(loss: Loss, weights: Tensor, images: Tensor, targets: Tensor) -> tuple[Tensor, Product]:
    """Losses of K mini-batches, and a function that multiplies their K Hessians by vectors (reverse over reverse).

    Each mini-batch has its own copy of the weights, so that one backward through the graph of all gradients multiplies
    every Hessian by its vector. The graph is built once: a product then costs two thirds of a Hessian-vector product
    from scratch.

    Args:
        loss: (weights (P,), images (B, …), targets (B, C)) -> scalar.
        weights: (P,).
        images: (K, B, …).
        targets: (K, B, C).

    Returns:
        (K,) losses and (K, P) -> (K, P).

    >>> square = lambda w, x, y: (x[0] * w.square()).sum()
    >>> losses, product = hessian_products(square, torch.ones(2), torch.tensor([[[1.0, -3.0]]]), torch.zeros(1, 1, 1))
    >>> losses, product(torch.tensor([[1.0, 1.0]]))
    (tensor([-2.]), tensor([[ 2., -6.]]))
    """
    with torch.enable_grad():
        copies = weights.expand(len(images), -1).clone().requires_grad_()
        if len(images) == 1:
            losses = loss(copies[0], images[0], targets[0])[None]
        else:
            losses = torch.vmap(loss, randomness="different")(copies, images, targets)
        (gradient,) = torch.autograd.grad(losses.sum(), copies, create_graph=True)

    def product(vectors: Tensor) -> Tensor:
        return torch.autograd.grad(gradient, copies, vectors, retain_graph=True)[0]

    return losses.detach(), product


def _products(limit: int) -> str:
    return f"{limit:,} products are as many forwards and {2 * limit:,} backwards for each mini-batch"


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    count: Annotated[int, Range(1, 1000)] = 5,
    batch_size: Annotated[int, Range(1, 65_536)] = 16,
    mini_batches: Annotated[int, Range(1, 10**6)] | None = None,
    l2: L2 = "squared",
    weight_decay: Weight = 0.05,
    training: bool = False,
    tolerance: Annotated[float, Range(0, 1)] = 1e-6,
    limit: Annotated[int, Range(1, 100_000, cost=_products)] = 200,
    basis: Annotated[int, Range(2, 10_000)] = 40,
    together: Annotated[int, Range(1, 1024)] | None = None,
    seed: Seed = 0,
) -> Measurement:
    """The largest eigenvalues of the Hessian of NLL + l2 for each mini-batch.

    The Hessian is taken over the parameters that require gradients. HDVW uses mini-batches of 16 augmented training
    images (mixup included) and k = 5, with PyHessian: power iteration with deflation, in evaluation mode. Its code was
    not released, and its form of l2 is unknown; it is a setting here, and the default is our choice. Fused attention
    has no second derivative: attention runs with PyTorch's math backend, without changes to the model.

    Args:
        model: a classifier; its state is restored afterwards.
        batches: yields (images, targets), augmented by the caller; targets are class indices, probabilities (B, C), or
            (labels, partners, share). Each batch is split into mini-batches; the remainder is dropped.
        count: k.
        batch_size: B of the mini-batches.
        mini_batches: number of mini-batches to use. Default: all.
        l2: `"squared"`, which shifts every eigenvalue by `weight_decay`; `"norms"`; or `"none"`. See `l2_term`.
        weight_decay: coefficient of the l2 term. Default: 0.05, as in HDVW's training.
        training: use training mode instead of evaluation mode: BatchNorm over the mini-batch, one fixed dropout mask.
        tolerance, limit, basis: see `largest_eigenvalues`; `basis` is the maximum number of stored vectors, each as
            large as the weights.
        together: number of mini-batches to process at once. Default: 4 on a GPU and 1 elsewhere. If `vmap` fails, they
            are processed one by one.
        seed: random seed of the start vectors.

    Returns:
        `eigenvalues`, `residuals`, `converged` (mini_batch, rank), largest |λ| first; `loss` and `products`, the
        number of products with the Hessian, (mini_batch); `negative_proportion` (NEP) and `positive_average` (APE) of
        the eigenvalues of all mini-batches.
    """
    weights = weights_of(model)
    flat = _flatten(model, weights)
    together = together or (4 if flat.is_cuda else 1)
    if count > len(flat):
        raise VitlabError(f"hessian_spectrum(count={count}): expected at most {len(flat)}, the number of weights")
    stored = together * min(max(basis, 2 * count + 2), len(flat), limit)
    there = _free(flat.device) if flat.is_cuda else None
    vectors = f"hessian_spectrum with {stored:,} vectors of {len(flat):,} weights"
    check_memory(vectors, flat.element_size() * stored * len(flat), there, "use a smaller basis, count or together")
    solver = {"tolerance": tolerance, "limit": limit, "basis": basis}
    groups: list[Mapping[str, np.ndarray]] = []
    with seeded_mode(model, training=training, seed=seed), _exact_kernels():
        loss = _loss(model, weights, l2, weight_decay)
        pairs = list(split_mini_batches(soft_target_batches(model, weights, batches), batch_size, mini_batches))
        for low in range(0, len(pairs), together):
            group = pairs[low : low + together]
            which = f"mini-batches {low + 1} to {low + len(group)}" if len(group) > 1 else f"mini-batch {low + 1}"
            name, total = f"{which} of {len(pairs)}", math.ceil(len(pairs) / together)
            starts = torch.stack([_start(flat, seed + low + i) for i in range(len(group))])
            torch.manual_seed(seed + low)  # dropout must not depend on earlier groups, which may be cached
            groups.append(step(name, total, partial(_solve, name, loss, flat, group, starts, count, **solver)))
    values = _pool(groups)
    data = getattr(batches, "fingerprint", "")
    return Measurement(
        "hessian_spectrum",
        type(model).__name__,
        values,
        {name: ("mini_batch", "rank")[: value.ndim] for name, value in values.items()},
        {"mini_batch": tuple(range(len(pairs))), "rank": tuple(range(1, count + 1))},
        {
            **{"count": count, "batch_size": batch_size, "mini_batches": mini_batches, "l2": l2},
            **{"weight_decay": weight_decay, "training": training, "seed": seed, **solver},
        },
        provenance(device=str(flat.device), images=len(pairs) * batch_size, data=data, seed=seed),
        pooling=_POOLING,
    )


def _free(device: torch.device) -> float:
    """The memory of a GPU that is free or cached by torch, in bytes."""
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(torch.cuda.mem_get_info(device)[0] + cached)


@contextmanager
def _exact_kernels() -> Iterator[None]:
    """Use twice-differentiable attention and disable TF32 in convolutions, too inexact for small eigenvalues."""
    with sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        yield


def _trainable(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def _flatten(model: nn.Module, weights: Weights) -> Tensor:
    """(P,) concatenation of the weights that require gradients."""
    names = _trainable(model)
    if not names:
        raise VitlabError(
            f"no parameter of {type(model).__name__} requires gradients; enable them with requires_grad_()"
        )
    return torch.cat([weights[name].flatten() for name in names])


def _loss(model: nn.Module, weights: Weights, l2: L2, decay: float) -> Loss:
    """NLL + l2 as a function of the flattened weights."""
    names = _trainable(model)
    sizes = [weights[name].numel() for name in names]

    def loss(flat: Tensor, images: Tensor, targets: Tensor) -> Tensor:
        pieces = zip(names, torch.split(flat, sizes), strict=True)
        moved = {name: piece.view_as(weights[name]) for name, piece in pieces}
        logits = logits_at(model, {**weights, **moved}, images)
        return cross_entropy(logits, targets) + l2_term(list(moved.values()), l2, decay)

    return loss


def _start(flat: Tensor, seed: int) -> Tensor:
    """A random vector that does not depend on the device or on the number of mini-batches per group."""
    return torch.randn(flat.shape, generator=torch.Generator().manual_seed(seed), dtype=flat.dtype).to(flat.device)


def _solve(
    name: str, loss: Loss, flat: Tensor, group: list[Pair], starts: Tensor, count: int, **settings: Any
) -> dict[str, np.ndarray]:
    """Loss and eigenvalues of each mini-batch of a group; one by one if batching with `vmap` fails."""
    images, targets = (torch.stack(part) for part in zip(*group, strict=True))
    try:
        losses, product = hessian_products(loss, flat, images, targets)
    except RuntimeError:
        if len(group) == 1:
            raise
        each = zip(group, starts, strict=True)
        return _concatenate([_solve(name, loss, flat, [pair], start[None], count, **settings) for pair, start in each])
    if not bool(losses.isfinite().all()):
        raise VitlabError("the loss of a mini-batch is not finite; check the images and the weights for NaN")
    made = 0

    def counted(vectors: Tensor) -> Tensor:
        nonlocal made
        made += 1
        inside(f"{name}, product {made}")
        return product(vectors)

    result = largest_eigenvalues(counted, starts, count, generator=torch.Generator().manual_seed(0), **settings)
    return {
        "eigenvalues": result.values.numpy(),
        "residuals": result.residuals.numpy(),
        "converged": result.converged.numpy(),
        "loss": losses.double().cpu().numpy(),
        "products": np.full(len(group), result.products),
    }


def _concatenate(groups: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}


def _pool(groups: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return derive(_concatenate(groups), _POOLING)
