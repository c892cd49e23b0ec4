"""Resolve the preprocessing of a model: given by the caller, else declared by the model, else assumed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from vitlab.adapters import built_size
from vitlab.adapters.wrappers import unwrap
from vitlab.core.annotations import shown
from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError
from vitlab.preprocessing.declaration import declared
from vitlab.preprocessing.description import Preprocessing

Given = Preprocessing | Mapping[str, Any] | None


def preprocessing_of(
    model: nn.Module, given: Given = None, *, assume: Mapping[str, Any] | None = None
) -> Preprocessing:
    """The preprocessing of a model.

    Args:
        model: any model. The input size is that of the built model, not that of its pretrained weights.
        given: a `Preprocessing`, which is returned unchanged, or some of its fields, which replace the declared ones.
        assume: fields to use, with a warning, if the model declares nothing (for example the mean and std of the
            data); `source` is then "assumed". Default: ImageNet's mean and std.
    """
    if isinstance(given, Preprocessing):
        return given
    model, given = unwrap(model), dict(given or {})
    known = declared(model)
    if known is None and not {"mean", "std"} <= given.keys():
        known = {**(assume or {}), "source": "assumed"}
        assumed = ", ".join(f"{name}={value}" for name, value in (assume or {}).items() if name in ("mean", "std"))
        warnings.warn(
            f"{type(model).__name__} does not declare its preprocessing; assuming {assumed or 'ImageNet mean and std'} "
            "and crop 0.875, bicubic; give preprocessing= to set it",
            stacklevel=2,
        )
    known = dict(known or {})
    size = built_size(model) or known.get("size") or (224, 224)
    return Preprocessing(**{"source": "given", **known, "size": size}).changed(given)


def input_size(model: nn.Module, given: Given = None) -> tuple[int, int]:
    """(h, w) of a model's input: given, else that of the built model, else declared, else 224."""
    if given is not None and not isinstance(given, Preprocessing | Mapping):
        raise VitlabError(f"invalid preprocessing={shown(given)}; expected a Preprocessing, or fields by name")
    if isinstance(given, Preprocessing):
        return given.size
    model = unwrap(model)
    size = (given or {}).get("size") or built_size(model) or (declared(model) or {}).get("size") or (224, 224)
    return (size, size) if isinstance(size, int) else (int(size[-2]), int(size[-1]))


def normalisation_of(model: nn.Module) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """The declared mean and std of a model, or None."""
    known = declared(model) or {}
    return (tuple(known["mean"]), tuple(known["std"])) if known.get("mean") and known.get("std") else None


def described(model: nn.Module, batches: Any, given: Given) -> Any:
    """Batches of a caller's own with the preprocessing that the caller states; unchanged where none is given.

    Args:
        model: completes fields that are not given.
        batches: an iterable of (images, targets), images normalised as `given` says.
        given: a `Preprocessing`, or some of its fields.
    """
    if given is None:
        return batches
    if isinstance(batches, Batches):
        raise VitlabError("preprocessing= is for plain batches; these Batches state their own preprocessing")
    how = preprocessing_of(model, given)
    return Batches(batches, how.mean, how.std, how.classes, preprocessing=how.record())
