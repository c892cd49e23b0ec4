"""The model expressions that converted released weights fit, for error messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import timm
import torch

from vitlab.core.errors import VitlabError
from vitlab.core.expressions import ModelExpression, PartCall
from vitlab.models.published.layout import Layout, Tensors

_POOLING = ".vitlab_token_aware_pooling."


def pooling_in(tensors: Tensors) -> PartCall | None:
    """Returns the token-aware pooling in converted weights, with its number of branches, or None.

    >>> key = "blocks.0.norm1.vitlab_token_aware_pooling.predictor.0.weight"
    >>> str(pooling_in({key: torch.zeros(4, 8, 3, 3)}))
    'TokenAwarePooling(branches=4)'
    """
    widths = [len(tensor) for key, tensor in tensors.items() if key.endswith(f"{_POOLING}predictor.0.weight")]
    return PartCall("TokenAwarePooling", {"branches": widths[0]}) if widths else None


def fitting(layout: Layout, tensors: Tensors, path: str) -> list[str]:
    """Returns the expressions of vitlab's models with the keys and shapes of the converted weights.

    The classifier may have another number of classes. Importing this package registers the models with timm.
    """
    plain = _without_head({key: tensor.shape for key, tensor in tensors.items() if _POOLING not in key})
    pooling = pooling_in(tensors)
    parts = (pooling,) if pooling else ()
    names = [name for prefix in layout.models for name in timm.list_models(f"{prefix}*") if _is_ours(name)]
    for settings in layout.variants:
        fits = [name for name in names if _shapes(name, settings) == plain]
        if fits:
            return [str(ModelExpression("vitlab", name, {**settings, "weights": path}, parts)) for name in fits]
    return []


def _is_ours(name: str) -> bool:
    return timm.model_entrypoint(name).__module__.startswith("vitlab.")


def _shapes(name: str, settings: Mapping[str, Any]) -> dict[str, torch.Size]:
    """Returns the shapes of a model on the meta device; empty if it does not take these settings."""
    try:
        with torch.device("meta"):
            model = timm.create_model(name, **settings)
    except (TypeError, VitlabError):
        return {}
    return _without_head({key: tensor.shape for key, tensor in model.state_dict().items()})


def _without_head(shapes: dict[str, torch.Size]) -> dict[str, torch.Size]:
    return {key: shape for key, shape in shapes.items() if not key.startswith("head.")}
