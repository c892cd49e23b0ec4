"""Eigenvalues of a symmetric matrix that is known only by its products with vectors: Lanczos with thick restart.

After m products the matrix H is known on an orthonormal basis V of m vectors: H V = V T + β u eᵀ, u the next
direction. The eigenvalues θ of the small T are the best guesses of those of H, the ends of the spectrum first,
negative and positive alike, and β |last entry of T's eigenvector| is the residual ‖H y − θ y‖ of each (Saad,
Numerical Methods for Large Eigenvalue Problems, Ch. 6). Power iteration keeps one vector of the m and throws the
others away.

Shape legend: K matrices at once, P rows of each, m vectors of the basis, k eigenvalues wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vitlab.core.errors import VitlabError

Product = Callable[[Tensor], Tensor]


class Eigenvalues(NamedTuple):
    """The eigenvalues of K matrices that are largest in magnitude, largest first, and how sure they are.

    Args:
        values: (K, k) float64.
        residuals: (K, k) ‖H y − θ y‖: an eigenvalue lies at most so far from θ.
        converged: (K, k) whether the estimated error is within the tolerance.
        products: how often each matrix was multiplied with a vector.
    """

    values: Tensor
    residuals: Tensor
    converged: Tensor
    products: int


def largest_eigenvalues(
    product: Product,
    start: Tensor,
    count: int,
    *,
    tolerance: float = 1e-6,
    limit: int = 200,
    basis: int = 40,
    generator: torch.Generator | None = None,
) -> Eigenvalues:
    """The `count` eigenvalues of largest |λ| of K symmetric matrices, all K in step.

    Every direction is made orthogonal to all earlier ones, twice: with float32 products, plain Lanczos finds the
    largest eigenvalue again and again. An eigenvalue that stands several times is found as often: where the basis is
    closed under H, a random direction continues it.

    Args:
        product: (K, P) -> (K, P), multiplies each matrix with its vector.
        start: (K, P) random vectors.
        count: k.
        tolerance: of the relative error of each eigenvalue, estimated by `error_estimate`. It is far below what is
            wanted of the values, because a loose one stops before a close neighbour has appeared: on the spectra of
            12 small ViTs and a random one, some value of five was more than 1 % wrong in 9 % of the runs at 1e-3 and
            in 0.1 % at 1e-6, which takes two to six products more.
        limit: the most products.
        basis: the most vectors kept, each as large as the weights; beyond it Lanczos restarts from the better half.
        generator: draws the random directions.

    Returns:
        `Eigenvalues`; those that did not converge within the limit are marked.

    >>> diagonal = torch.tensor([[3.0, -2.0, 1.0, 0.0, 0.0]])
    >>> found = largest_eigenvalues(lambda v: diagonal * v, torch.ones(1, 5), 2)
    >>> [round(value, 3) for value in found.values[0].tolist()], found.products <= 5
    ([3.0, -2.0], True)
    """
    copies, rows = start.shape
    room = min(max(basis, 2 * count + 2), rows, limit)
    if not 0 < count <= min(rows, limit):
        raise VitlabError(f"{count} eigenvalues were asked for of a matrix with {rows} rows in {limit} products")
    vectors = start.new_zeros(room, copies, rows)
    small = torch.zeros(copies, 0, 0, dtype=torch.float64)
    direction = start / start.norm(dim=1, keepdim=True)
    size = products = 0
    while products < limit:
        vectors[size] = direction
        size, products = size + 1, products + 1
        image = product(direction)
        coefficients, rest = _orthogonalise(image, vectors[:size])
        small = _border(small, coefficients)
        length = rest.norm(dim=1)
        closed = length <= 100 * torch.finfo(start.dtype).eps * image.norm(dim=1)
        values, states, residuals = ritz(small, torch.where(closed, 0.0, length))
        errors = error_estimate(values, residuals)[:, :count]
        converged = errors <= tolerance * values[:, :count].abs()
        # A closed basis has residual 0 and may still lack a copy of an eigenvalue: one more direction must agree.
        if size == rows or (size >= count and bool(converged.all()) and not bool(closed.any())):
            break
        if size == room:
            size = room // 2
            _combine(vectors, states[:, :, :size])
            small = torch.diag_embed(values[:, :size])
        direction = _next(rest, length, closed, vectors[:size], generator)
    return Eigenvalues(values[:, :count], residuals[:, :count], converged, products)


def ritz(small: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues of T by magnitude, its eigenvectors in columns, and the residuals of both as a guess about H.

    Args:
        small: (K, m, m) T.
        length: (K,) β, the part of the last product that lies outside the basis.

    Returns:
        (K, m) values, (K, m, m) states, (K, m) residuals.

    >>> ritz(torch.diag(torch.tensor([1.0, -3.0]))[None], torch.tensor([0.5]))[0].tolist()
    [[-3.0, 1.0]]
    """
    values, states = torch.linalg.eigh(small)
    order = values.abs().argsort(dim=1, descending=True)
    values, states = values.gather(1, order), states.gather(2, order[:, None].expand_as(states))
    return values, states, length.to(small)[:, None] * states[:, -1].abs()


def error_estimate(values: Tensor, residuals: Tensor) -> Tensor:
    """How far each value may be from an eigenvalue: min(r, r² / gap), gap to the nearest other value (Kato and Temple).

    Args:
        values: (K, m).
        residuals: (K, m).

    >>> error_estimate(torch.tensor([[4.0, 2.0]]), torch.tensor([[0.2, 3.0]])).tolist()
    [[0.020000001415610313, 3.0]]
    """
    if values.shape[1] == 1:  # nothing is known of the gap
        return residuals
    distances = (values[:, :, None] - values[:, None, :]).abs()
    distances = distances + torch.diag_embed(torch.full_like(values, float("inf")))
    return torch.minimum(residuals, residuals.square() / distances.amin(dim=2))


def _orthogonalise(image: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """What an image has in the basis, (K, m) in float64, and what is left of it."""
    first = torch.einsum("mkp,kp->km", vectors, image)
    rest = image - torch.einsum("mkp,km->kp", vectors, first)
    second = torch.einsum("mkp,kp->km", vectors, rest)
    rest = rest - torch.einsum("mkp,km->kp", vectors, second)
    coefficients = (first + second).double().cpu()
    if not bool(coefficients.isfinite().all()):
        raise VitlabError("a product with the Hessian is not finite; the weights or the loss overflow here")
    return coefficients, rest


def _border(small: Tensor, coefficients: Tensor) -> Tensor:
    """T with one more row and column."""
    copies, size = coefficients.shape
    larger = small.new_zeros(copies, size, size)
    larger[:, :-1, :-1] = small
    larger[:, -1], larger[:, :, -1] = coefficients, coefficients
    return larger


def _combine(vectors: Tensor, states: Tensor) -> None:
    """Replace the first vectors by combinations of all, in place and a slice at a time: no second basis is held."""
    weights = states.to(vectors)
    for part in torch.split(vectors, 2**18, dim=2):
        part[: states.shape[2]] = torch.einsum("mkp,kmn->nkp", part, weights)


def _next(rest: Tensor, length: Tensor, closed: Tensor, vectors: Tensor, generator: torch.Generator | None) -> Tensor:
    """The direction of the rest; a random one where nothing is left."""
    if bool(closed.any()):
        random = torch.randn(rest.shape, generator=generator, dtype=rest.dtype).to(rest.device)
        rest = torch.where(closed[:, None], _orthogonalise(random, vectors)[1], rest)
        length = rest.norm(dim=1)
    return rest / length[:, None]
