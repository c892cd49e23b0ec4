"""The identity of a measured model: name, model expression, digest and origin of its weights, fitted parts."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters.wrappers import unwrap
from vitlab.core.batches import recorded
from vitlab.core.descriptions import origins
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_model
from vitlab.core.measurement import Card, Measurement
from vitlab.core.settings import check_value
from vitlab.fitted import FittedPart, by_kind, configuration, parts

_RANDOM, _RANDOM_HEAD, _CHANGED = "random", " (random head)", ", changed after loading"


@dataclass(frozen=True)
class ModelIdentity:
    """Identifies a model in results.

    Args:
        name: display name. Default: the class, the fitted parts and the first digits of `weights`.
        expression: the model expression that built it, or None if there is none or its parts were changed since.
        weights: hex digest of the state dict and of the fitted parts; the same on every device.
        origin: `random`, `file: PATH`, `hub: TAG` or `unknown`; `(random head)` is appended if only the
            classifier is random, `, changed after loading` if the weights differ from the loaded ones.
        parts: the fitted parts, grouped over blocks: name, seam, settings, blocks.
        extensions: the origin of the architecture and of the parts that extensions add, by name.
        architecture: the expression that builds the architecture, without weights, files and parts: the same weights
            give other results with other settings, such as `num_heads`. Empty for models without an expression.
    """

    name: str
    expression: str | None
    weights: str
    origin: str
    parts: Sequence[Mapping[str, Any]]
    extensions: Mapping[str, str] = field(default_factory=dict)
    architecture: str = ""

    @property
    def untrained(self) -> bool:
        """Whether the weights, or those of the classifier, are known to be random."""
        return self.origin == _RANDOM or self.origin.endswith(_RANDOM_HEAD)

    def __str__(self) -> str:
        fitted = "".join(f", {part['name']} at {part['seam']}" for part in self.parts)
        return f"{self.name}: weights {self.origin} ({self.weights[:6]}){fitted}"


@dataclass(frozen=True)
class Origin:
    """The origin of a model's weights, stored on the model as `vitlab_origin`.

    As an attribute of its own class it is copied and pickled with the model, but is not a tensor and not supported by
    TorchScript, so that it is in neither the state dict nor a scripted model.

    Args:
        words: the origin as text, as in `ModelIdentity`.
        expression: the expression that built the model.
        plain: digest of the weights without those of the parts, at loading.
        parts: the fitted parts at loading.
        architecture: the expression that builds the architecture, without files.
    """

    words: str
    expression: str | None
    plain: str
    parts: tuple[FittedPart, ...]
    architecture: str = ""


def set_origin(model: nn.Module, words: str, expression: str | None, architecture: str = "") -> None:
    """Store the origin of a model's weights on the model; does nothing on the meta device."""
    holder: Any = model
    state = model.state_dict()
    if not any(tensor.is_meta for tensor in state.values()):
        plain = _digest(_without_parts(_fingerprints(state)))
        holder.vitlab_origin = Origin(words, expression, plain, parts(model), architecture)


def is_random(model: nn.Module) -> bool:
    """Whether all weights of a model are randomly initialised."""
    origin: Origin | None = getattr(unwrap(model), "vitlab_origin", None)
    return origin is not None and origin.words == _RANDOM


def trained_origin(model: nn.Module) -> str:
    """The origin of a model's weights if they are known to be trained, else an empty string."""
    origin: Origin | None = getattr(unwrap(model), "vitlab_origin", None)
    return "" if origin is None or origin.words == _RANDOM else origin.words


def identify(model: nn.Module, name: str | None = None) -> ModelIdentity:
    """Compute the identity of a model.

    Args:
        model: any model; wrappers of `torch.compile` and DDP are removed first.
        name: display name, instead of the default.

    >>> identity = identify(nn.Linear(1, 1))
    >>> identity.name == f"Linear ({identity.weights[:6]})", identity.origin
    (True, 'unknown')
    """
    inner = unwrap(model)
    fingerprints, fitted = _fingerprints(inner.state_dict()), parts(inner)
    weights = _digest({**fingerprints, **_part_fingerprints(inner, fitted)})
    origin: Origin | None = getattr(inner, "vitlab_origin", None)
    words, expression = "unknown", None
    if origin is not None:
        words = origin.words if _digest(_without_parts(fingerprints)) == origin.plain else origin.words + _CHANGED
        expression = origin.expression if fitted == origin.parts else None
    kinds = " + ".join([type(inner).__name__, *dict.fromkeys(part.name for part in fitted)])
    builder = getattr(origin, "architecture", "")
    architecture = str(replace(parse_model(builder), parts=())) if builder else ""
    used = [("models", each) for each in re.findall(r"\bvitlab/([\w.-]+)", builder)]
    used += [("parts", part.name) for part in fitted]
    display = name or f"{kinds} ({weights[:6]})"
    return ModelIdentity(display, expression, weights, words, by_kind(fitted), origins(used), architecture)


def weights_digest(model: nn.Module, state: Mapping[str, Tensor]) -> str:
    """The weights digest of `identify` for a state dict that was already gathered."""
    inner = unwrap(model)
    return _digest({**_fingerprints(state), **_part_fingerprints(inner, parts(inner))})


def structure_digest(model: nn.Module) -> str:
    """Digest of the classes and settings of all modules, such as numbers of heads, which the weights do not show.

    >>> structure_digest(nn.LayerNorm(2, eps=1e-5)) == structure_digest(nn.LayerNorm(2, eps=1e-6))
    False
    """
    inner = unwrap(model)
    classes = [(path, type(module).__qualname__) for path, module in inner.named_modules()]
    return blake2b(repr((classes, configuration(inner))).encode(), digest_size=16).hexdigest()


def display_name(name: str | None, subject: str | None) -> str | None:
    """The display name that a caller gave, also as the deprecated argument `subject`."""
    if subject is not None:
        warnings.warn("subject= is deprecated; use name=", DeprecationWarning, stacklevel=3)
    check_value("", "name", name, str | None)
    return name or subject


def signed(measurement: Measurement, identity: ModelIdentity, batches: Any = None) -> Measurement:
    """The measurement with the model's name and identity, and what is known of the batches, in its provenance.

    `extensions` has the origin of the instrument or stress test, of the model and its parts, and of the data set, where
    extensions add them.
    """
    if not isinstance(measurement, Measurement):
        raise VitlabError(
            f"an instrument or stress test returned {type(measurement).__name__}; expected a vitlab.Measurement"
        )
    data = re.match(r"\w+(?=[ (])", getattr(batches, "fingerprint", ""))  # it starts with the data expression
    named = [("instruments", measurement.kind), ("stress_tests", measurement.kind), ("data", data[0] if data else "")]
    used = {**origins(named), **identity.extensions}
    added = {"extensions": used} if used else {}
    model = {key: value for key, value in asdict(identity).items() if key != "extensions"}
    provenance = {**measurement.provenance, **recorded(batches), **added, "model": model}
    return replace(measurement, subject=identity.name, provenance=provenance)


def warn_untrained(identity: ModelIdentity, card: Card) -> None:
    """Warn if a measurement that needs a trained model is made with random weights."""
    if identity.untrained and card.needs_training:
        what = "a random classifier" if identity.origin.endswith(_RANDOM_HEAD) else "random weights"
        warnings.warn(
            f"{identity.name} has {what}; accuracies and losses are those of an untrained model", stacklevel=3
        )


def _fingerprints(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Dtype, shape and digest of the bytes of each tensor, by name. Digests release the GIL: several run at a time."""
    tensors = {name: tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        digests = pool.map(_bytes_digest, tensors.values())
        return {
            name: f"{t.dtype} {tuple(t.shape)} {digest}"
            for (name, t), digest in zip(tensors.items(), digests, strict=True)
        }


def _bytes_digest(tensor: Tensor) -> str:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return blake2b(flat.view(torch.uint8).numpy().data, digest_size=16).hexdigest()


def _part_fingerprints(model: nn.Module, fitted: Sequence[FittedPart]) -> dict[str, str]:
    """Class, seam and configuration of the parts, which are not in the state dict, by path."""
    return {
        f"part {part.path}": repr((part.kind.__name__, part.seam, configuration(model.get_submodule(part.path))))
        for part in fitted
    }


def _without_parts(fingerprints: Mapping[str, str]) -> dict[str, str]:
    """The fingerprints without those of parts."""
    return {name: value for name, value in fingerprints.items() if "vitlab_" not in name}


def _digest(fingerprints: Mapping[str, str]) -> str:
    """One digest, independent of the order of the names."""
    lines = "\n".join(f"{name}\t{value}" for name, value in sorted(fingerprints.items()))
    return blake2b(lines.encode(), digest_size=16).hexdigest()
