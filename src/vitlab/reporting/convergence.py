"""A note on eigenvalues that did not converge: their numbers are not those of the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.measurement import Measurement


def convergence_note(measurements: Sequence[Measurement]) -> str:
    """A sentence that counts the eigenvalues that did not converge; empty if all did.

    >>> values = {"converged": np.array([[True, False]])}
    >>> found = Measurement("hessian_spectrum", "ViT", values, {"converged": ("mini_batch", "rank")}, {}, {"limit": 9})
    >>> convergence_note([found])
    'Not converged within 9 products: 1 of 2 eigenvalues of ViT. Their values are not exact; increase limit.'
    """
    counts: dict[str, tuple[int, int]] = {}
    limits = set()
    for each in measurements:
        converged = np.asarray(each.values.get("converged", ()), dtype=bool)
        if each.kind != "hessian_spectrum" or converged.all():
            continue
        missed, total = counts.get(each.subject, (0, 0))
        counts[each.subject] = (missed + int((~converged).sum()), total + converged.size)
        limits.add(str(each.settings.get("limit", "the allowed number of")))
    if not counts:
        return ""
    found = ", ".join(f"{missed} of {total} eigenvalues of {name}" for name, (missed, total) in counts.items())
    limit = " or ".join(sorted(limits))
    return f"Not converged within {limit} products: {found}. Their values are not exact; increase limit."
