"""Estimate of what training runs and measurements write to disk. Imports no torch, builds no model."""

from __future__ import annotations

from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_model
from vitlab.core.recipe import Recipe

__all__ = ["parameters_of", "written_by"]

#: Parameters in millions by a word of the model's name; the first that occurs counts.
_MILLIONS = {"tiny": 6, "small": 23, "base": 88, "large": 305, "vilt": 88, "resnet50": 25, "alternet50": 25}
_OTHERS = 30  # millions, of other models and of decoders around a backbone

_CHECKPOINTS = 2  # that a run keeps


def parameters_of(model: str) -> float:
    """Returns the estimated number of parameters of a model expression, parts left out.

    >>> parameters_of("timm/deit_tiny_patch16_224"), parameters_of("timm/vit_tiny(embed_dim=64, depth=6)")
    (6000000.0, 294912.0)
    """
    try:
        parsed = parse_model(model)
    except VitlabError:
        return _OTHERS * 1e6
    backbone = parsed.settings.get("backbone")
    if isinstance(backbone, str):
        return parameters_of(backbone) + _OTHERS * 1e6
    width, depth = parsed.settings.get("embed_dim"), parsed.settings.get("depth")
    if isinstance(width, int) and isinstance(depth, int):  # attention 4 d², MLP 8 d² in each block
        return 12.0 * depth * width**2
    return next((count for word, count in _MILLIONS.items() if word in parsed.name), _OTHERS) * 1e6


def written_by(recipe: Recipe) -> float:
    """Returns the estimated bytes of a finished run: final weights, snapshots, and checkpoints with two moments."""
    copies = 1 + len(recipe.snapshots) + _CHECKPOINTS * 3
    return 4 * parameters_of(recipe.model) * copies
