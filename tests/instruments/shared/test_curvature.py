"""Eigenvalues against numpy's dense ones, and the number of products against power iteration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.instruments.shared.curvature import largest_eigenvalues


def dense(matrix: Tensor, count: int) -> np.ndarray:
    values = np.linalg.eigvalsh(matrix.double().numpy())
    return values[np.argsort(-np.abs(values))][:count]


def symmetric(values: Tensor, seed: int) -> Tensor:
    """A matrix with these eigenvalues in a random basis."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(len(values), len(values), generator=generator, dtype=torch.float64))[0]
    return basis @ torch.diag(values.double()) @ basis.T


def solve(matrix: Tensor, count: int, **options: object):
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(1, len(matrix), generator=generator, dtype=matrix.dtype)
    return largest_eigenvalues(lambda v: v @ matrix, start, count, generator=generator, **options)


def power_iteration(matrix: Tensor, count: int, iterations: int = 100, tolerance: float = 1e-3):
    """The method of PyHessian: one vector at a time, orthogonalised against earlier ones."""
    generator = torch.Generator().manual_seed(5)
    values, vectors, products = [], [], 0
    for _ in range(count):
        vector, value = torch.randn(len(matrix), generator=generator, dtype=matrix.dtype), None
        for _ in range(iterations):
            for other in vectors:
                vector = vector - other * (other @ vector)
            vector = vector / vector.norm()
            image, before = matrix @ vector, value
            products, value = products + 1, float(vector @ image)
            vector = image / image.norm()
            if before is not None and abs(value - before) <= tolerance * abs(before):
                break
        values.append(value)
        vectors.append(vector)
    return sorted(values, key=lambda v: -abs(v)), products


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 10**6), st.sampled_from([12, 40]))
def test_random_matrices(rows: int, count: int, seed: int, basis: int) -> None:
    count = min(count, rows)
    matrix = torch.randn(rows, rows, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    matrix = matrix + matrix.T
    found = solve(matrix, count, basis=basis, tolerance=1e-10, limit=400)
    assert found.converged.all()
    np.testing.assert_allclose(np.abs(found.values[0]), np.abs(dense(matrix, count)), rtol=1e-5)


def test_several_matrices_at_once_agree_with_each_alone() -> None:
    matrices = torch.stack([symmetric(torch.linspace(-1.3 - i, 3, 60), i) for i in range(3)])
    start = torch.randn(3, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = largest_eigenvalues(lambda v: torch.einsum("kp,kpq->kq", v, matrices), start, 4)
    for row, matrix in zip(found.values, matrices, strict=True):
        np.testing.assert_allclose(row, dense(matrix, 4), rtol=1e-3)


@pytest.mark.parametrize("values", [[5.0] * 3 + [1.0] * 20, [-2.0] * 30, [4.0, -4.0, 4.0, -4.0] + [0.0] * 30])
def test_eigenvalues_are_found_with_their_multiplicity(values: list[float]) -> None:
    matrix = symmetric(torch.tensor(values), 1)
    found = solve(matrix, 4)
    np.testing.assert_allclose(sorted(found.values[0]), sorted(dense(matrix, 4)), rtol=1e-6)


def test_thick_restart_needs_little_more_than_an_unbounded_basis() -> None:
    matrix = symmetric(torch.cat([torch.linspace(-1, 1, 300), torch.tensor([1.5, -1.4, 1.3, 1.25, -1.2])]), 2)
    bounded, free = solve(matrix, 5, basis=12), solve(matrix, 5, basis=300)
    np.testing.assert_allclose(bounded.values[0], dense(matrix, 5), rtol=1e-3)
    assert free.products <= bounded.products <= 3 * free.products


def test_float32_products_give_no_spurious_copies() -> None:
    values = torch.cat([torch.tensor([1000.0, -300.0, 100.0, 50.0, 20.0]), torch.linspace(-1, 1, 400)])
    matrix = symmetric(values, 4)
    found = solve(matrix.float(), 5)
    np.testing.assert_allclose(found.values[0], dense(matrix, 5), rtol=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_a_quarter_of_the_products_of_power_iteration(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tops = torch.tensor([30.0, -24.0, 20.0, 17.0, 15.0]) + torch.rand(5, generator=generator)
    matrix = symmetric(torch.cat([tops, torch.randn(500, generator=generator) * 4]), seed)
    expected = dense(matrix, 5)

    def wrong(values: object) -> float:
        return float(np.max(np.abs(np.asarray(values) - expected) / np.abs(expected)))

    values, products = power_iteration(matrix, 5)
    enough = next(
        n for n in range(5, 100) if wrong(solve(matrix, 5, limit=n, tolerance=0.0).values[0]) <= wrong(values)
    )
    assert enough <= products / 4
    # The default tolerance continues until no eigenvalue is missed, and still needs a third of the products.
    found = solve(matrix, 5)
    assert wrong(found.values[0]) < 1e-5
    assert found.products <= products / 3


def test_unconverged_eigenvalues_are_marked() -> None:
    found = solve(symmetric(torch.linspace(0.9, 1.0, 200), 0), 5, limit=6)
    assert found.products == 6
    assert not found.converged.all()


def test_mistakes() -> None:
    with pytest.raises(VitlabError, match=r"invalid count=3; expected 1 to 2 eigenvalues \(2 rows"):
        solve(torch.eye(2), 3)
    with pytest.raises(VitlabError, match="not finite"):
        solve(torch.full((9, 9), float("nan")), 2)
