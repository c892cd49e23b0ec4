"""Which model was measured: its name, what built it, a digest of its weights, where these came from, its parts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters.wrappers import unwrap
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.fitted import FittedPart, by_kind, configuration, parts

_RANDOM, _RANDOM_HEAD, _CHANGED = "random", " (random head)", ", changed after loading"


@dataclass(frozen=True)
class ModelIdentity:
    """A model, told apart from others.

    Args:
        name: for display; by default the class, the fitted parts and the first digits of `weights`.
        expression: the model expression that built it, or None where it was not built by one or its parts were changed.
        weights: hex digest of the state dict and of the fitted parts; the same on every device.
        origin: `random`, `file: PATH`, `hub: TAG` or `unknown`; `(random head)` follows where only the classifier is
            random, `, changed after loading` where the weights are no longer those that were loaded.
        parts: the fitted parts, those that differ in their block only as one entry: name, seam, settings, blocks.
    """

    name: str
    expression: str | None
    weights: str
    origin: str
    parts: Sequence[Mapping[str, Any]]

    @property
    def untrained(self) -> bool:
        """Whether the weights, or those of the classifier, are known to be random."""
        return self.origin == _RANDOM or self.origin.endswith(_RANDOM_HEAD)

    def __str__(self) -> str:
        fitted = "".join(f", {part['name']} at {part['seam']}" for part in self.parts)
        return f"{self.name}: weights {self.origin} ({self.weights[:6]}){fitted}"


@dataclass(frozen=True)
class Origin:
    """Where a model's weights came from, kept on the model as `vitlab_origin`.

    An attribute of a class of our own is copied and pickled with the model but is no tensor and unknown to TorchScript,
    so that it enters neither a state dict nor a scripted model.

    Args:
        words: the origin in words, as in `ModelIdentity`.
        expression: the expression that built the model.
        plain: digest of the weights without those of the parts, when they were loaded.
        parts: the parts that were fitted then.
    """

    words: str
    expression: str | None
    plain: str
    parts: tuple[FittedPart, ...]


def set_origin(model: nn.Module, words: str, expression: str | None) -> None:
    """Remember where a model's weights came from; a model on the meta device has none."""
    holder: Any = model
    state = model.state_dict()
    if not any(tensor.is_meta for tensor in state.values()):
        holder.vitlab_origin = Origin(words, expression, _combined(_plain_keys(_fingerprints(state))), parts(model))


def is_random(model: nn.Module) -> bool:
    """Whether a model was built with random weights, none of them loaded."""
    origin: Origin | None = getattr(unwrap(model), "vitlab_origin", None)
    return origin is not None and origin.words == _RANDOM


def identify(model: nn.Module, name: str | None = None) -> ModelIdentity:
    """Tell which model this is.

    Args:
        model: any model; wrappers of `torch.compile` and DDP are looked through.
        name: for display, instead of the default name.

    >>> found = identify(nn.Linear(1, 1))
    >>> found.name == f"Linear ({found.weights[:6]})", found.origin
    (True, 'unknown')
    """
    if not isinstance(model, nn.Module):
        raise VitlabError(f"a model is a torch.nn.Module, not {type(model).__name__}; vitlab.load makes one from text")
    inner = unwrap(model)
    found, fitted = _fingerprints(inner.state_dict()), parts(inner)
    weights = _combined({**found, **_of_parts(inner, fitted)})
    origin: Origin | None = getattr(inner, "vitlab_origin", None)
    words, expression = "unknown", None
    if origin is not None:
        words = origin.words if _combined(_plain_keys(found)) == origin.plain else origin.words + _CHANGED
        expression = origin.expression if fitted == origin.parts else None
    kinds = " + ".join([type(inner).__name__, *dict.fromkeys(part.name for part in fitted)])
    return ModelIdentity(name or f"{kinds} ({weights[:6]})", expression, weights, words, by_kind(fitted))


def weights_digest(model: nn.Module, state: Mapping[str, Tensor]) -> str:
    """The digest of `identify`, of a state dict that was already gathered."""
    inner = unwrap(model)
    return _combined({**_fingerprints(state), **_of_parts(inner, parts(inner))})


def display_name(name: str | None, subject: str | None) -> str | None:
    """The name that a caller gave, also under its former name."""
    if subject is not None:
        warnings.warn("subject= is now name=", DeprecationWarning, stacklevel=3)
    return name or subject


def signed(measurement: Measurement, identity: ModelIdentity, also: Mapping[str, Any] | None = None) -> Measurement:
    """The measurement with the model's name and identity, and what else its provenance should say."""
    about = {**measurement.provenance, **(also or {}), "model": asdict(identity)}
    return replace(measurement, subject=identity.name, provenance=about)


def warn_untrained(identity: ModelIdentity, card: Card) -> None:
    """Warn where something that needs a trained model is measured of random weights."""
    if identity.untrained and card.needs_training:
        what = "a random classifier" if identity.origin.endswith(_RANDOM_HEAD) else "random weights"
        warnings.warn(
            f"{identity.name} has {what}: its accuracies and losses are those of an untrained model", stacklevel=3
        )


def _fingerprints(state: Mapping[str, Tensor]) -> dict[str, str]:
    """By name the dtype, shape and digest of the bytes of each tensor."""
    return {name: f"{t.dtype} {tuple(t.shape)} {_of_bytes(t)}" for name, t in state.items() if isinstance(t, Tensor)}


def _of_bytes(tensor: Tensor) -> str:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return blake2b(flat.view(torch.uint8).numpy().data, digest_size=16).hexdigest()


def _of_parts(model: nn.Module, fitted: Sequence[FittedPart]) -> dict[str, str]:
    """What the state dict does not say of the parts, by path."""
    return {
        f"part {part.path}": repr((part.kind.__name__, part.seam, configuration(model.get_submodule(part.path))))
        for part in fitted
    }


def _plain_keys(found: Mapping[str, str]) -> dict[str, str]:
    """Without the tensors of parts."""
    return {name: value for name, value in found.items() if "vitlab_" not in name}


def _combined(found: Mapping[str, str]) -> str:
    """One digest, whatever the order of the names."""
    lines = "\n".join(f"{name}\t{value}" for name, value in sorted(found.items()))
    return blake2b(lines.encode(), digest_size=16).hexdigest()
