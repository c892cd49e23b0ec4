"""Defaults for fields that measurements of earlier versions do not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def errors_by_name(dims: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Infer from names which value is the standard error of which, for files without the field `errors`.

    `drop_error` belongs to `drop`. If there is no value of that name, `clean_error` belongs to the first `clean_…` and
    `standard_error` to the first value with the same axes. A value that has an error or interval itself is not a
    standard error: `test_error`, a classification error, has `test_error_interval`.

    Args:
        dims: the axes of each value, by name.

    >>> errors_by_name({"accuracy": ("mask",), "standard_error": ("mask",), "test_error": ()})
    {'accuracy': 'standard_error'}
    """
    found: dict[str, str] = {}
    for name in dims:
        quantity = any(f"{name}_{what}" in dims for what in ("error", "interval"))
        if quantity or not name.endswith("_error"):
            continue
        stem = name.removesuffix("_error").removesuffix("standard").removesuffix("_")
        owner = stem if stem in dims else _first_like(dims, name, f"{stem}_" if stem else "")
        if owner:
            found.setdefault(owner, name)
    if "accuracy" in found and dims.get("error") == dims["accuracy"]:  # 1 - accuracy
        found["error"] = found["accuracy"]
    return found


def pooling_by_kind(kind: str, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns pooling rules for files without the field `pooling`, if their values are sufficient for pooling.

    Args:
        kind: kind of the measurement.
        names: names of its values.

    >>> pooling_by_kind("hessian_spectrum", ["eigenvalues", "negative_proportion"])
    {'eigenvalues': ('concatenate', 'mini_batch'), 'negative_proportion': ('negative_proportion', 'eigenvalues')}
    """
    found: dict[str, tuple[str, ...]] = {}
    for name in names if kind == "hessian_spectrum" else ():
        computed = name in ("negative_proportion", "positive_average")
        if computed or not name.endswith("_error"):
            found[name] = (name, "eigenvalues") if computed else ("concatenate", "mini_batch")
    return found


def _first_like(dims: Mapping[str, tuple[str, ...]], error: str, start: str) -> str | None:
    """Returns the first value with the axes of an error whose name starts with `start` and that is not an error."""
    likely = (name for name in dims if name.startswith(start) and not name.endswith(("_error", "_interval")))
    return next((name for name in likely if dims[name] == dims[error]), None)
