"""Read weights from safetensors and PyTorch files (with `weights_only=True`) and load them into a model."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters.positions import interpolated_positions
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import ModelExpression
from vitlab.core.store import read_tensors
from vitlab.markers import parts_in
from vitlab.models.published import layout_of
from vitlab.models.published.matching import fitting, pooling_in

#: Entries of a training checkpoint that hold the weights, in order of preference. Averaged weights (`…ema`) are used
#: only if there are no others, or on request.
ENTRIES = ("state_dict", "model", "model_state_dict", "model_state", "model_ema", "state_dict_ema", "ema")
#: Prefixes that DataParallel, `torch.compile` and Lightning add to every name.
_PREFIXES = ("module.", "_orig_mod.", "model.")
_PYTORCH = (".pth", ".pt", ".bin", ".ckpt", ".tar")


def read_weights(path: str | Path, entry: str | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors of a file by name, and the metadata that `write_tensors` stored with them.

    Args:
        path: a safetensors file, or a file of `torch.save` (.pth, .pt, .bin, .ckpt, .tar). The latter is read with
            `weights_only=True`: a file with other objects than tensors and plain values is an error, and no code in it
            is executed.
        entry: key of the weights in a training checkpoint. Default: the first of `ENTRIES` that is present.
    """
    if Path(path).suffix not in _PYTORCH or not Path(path).is_file():
        if entry is not None:
            raise VitlabError(f"invalid weights_entry={entry!r} with {path}; it is for files of torch.save; omit it")
        return read_tensors(path)
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):  # training scripts store their options in one
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file raises errors of any type
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise VitlabError(
            f"{path} cannot be read with weights_only=True ({reason}); other pickled objects are not read; "
            "save only the state dict, preferably as safetensors"
        ) from error
    return _weights_in(content, str(path), entry), {}


def from_released(
    tensors: Mapping[str, Tensor], model: nn.Module, expression: ModelExpression, path: str
) -> tuple[dict[str, Tensor], str]:
    """Convert weights in the layout of a released model; other weights are returned unchanged.

    Args:
        tensors: the weights by name.
        model: the model without its parts, for its keys.
        expression: the model expression. Its token-aware pooling must be that of the file; a file without it fits a
            model with `TokenAwarePooling(identity_init=True)`, to be trained.
        path: the file of the weights, for error messages.

    Returns:
        The weights by vitlab's keys, and the name of the released layout, or '' if nothing was converted.
    """
    own = model.state_dict()
    loaded = _without_prefixes(tensors, own)
    layout = layout_of(loaded)
    if layout is None or layout.mark in own:
        return dict(tensors), ""
    converted = layout.convert(loaded)
    plain = {name for name in converted if not parts_in([name])}
    same_model = plain == own.keys() and not _misshaped(model, converted, own)
    if same_model and _same_pooling(expression, converted):
        return converted, layout.family
    fits = " or ".join(fitting(layout, converted, path))
    if not fits:  # for example a tensor too many
        absent, unexpected = sorted(own.keys() - plain), sorted(plain - own.keys())
        fits = f"no model of vitlab: for this one there are {_difference(absent, unexpected) or 'other shapes'}"
    raise VitlabError(f"{path} (published layout {layout.family}) does not fit {expression}; it fits {fits}")


def _same_pooling(expression: ModelExpression, converted: Mapping[str, Tensor]) -> bool:
    """Whether an expression has the token-aware pooling of the weights; one to be trained may be added to weights
    without it if it starts as the identity."""
    given = [part.settings for part in expression.parts if part.name == "TokenAwarePooling"]
    pooling = pooling_in(converted)
    if pooling is None:
        return all(settings.get("identity_init") for settings in given)
    return [settings.get("branches", 4) for settings in given] == [pooling.settings["branches"]]


def _misshaped(model: nn.Module, given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> list[str]:
    """Names of tensors with other shapes than the model's, except those of a classifier of other classes."""
    differ = [name for name in own if given[name].shape != own[name].shape]
    return [] if _resized_classifier(model, given, own) == differ else differ


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], path: str, *, new_head: bool = False) -> bool:
    """Load weights into a model; missing and unexpected names and other shapes are errors.

    Args:
        model: changed in place.
        tensors: the weights by name.
        path: their file, for error messages.
        new_head: whether a classifier with another number of classes may keep its random weights, with a warning, and
            position embeddings of another grid are interpolated.

    Returns:
        Whether the classifier kept its random weights.
    """
    own = model.state_dict()
    loaded = _without_prefixes(tensors, own)
    if new_head:
        loaded |= interpolated_positions(model, loaded)
    head = _resized_classifier(model, loaded, own) if new_head else []
    for name in head:
        del loaded[name]
    try:
        missing, unexpected = model.load_state_dict(loaded, strict=False)
    except RuntimeError as error:
        raise _mismatch(model, path, " ".join(str(error).split())[:300]) from error
    absent = [name for name in missing if name not in head]
    if absent or unexpected:
        raise _mismatch(model, path, _difference(absent, unexpected))
    if head:
        warnings.warn(
            f"{path} has another number of classes than the model: {', '.join(head)} keep their random initial values",
            stacklevel=4,
        )
    return bool(head)


def _weights_in(content: Any, path: str, entry: str | None) -> dict[str, Tensor]:
    """The weights in a loaded file of `torch.save`: the whole object, or one entry."""
    if entry is not None:
        entries = (
            [str(key) for key, value in content.items() if _is_state(value)] if isinstance(content, Mapping) else []
        )
        if entry not in entries:
            raise unknown(f"entry with weights in {path}", entry, entries)
        return dict(content[entry])
    if _is_state(content):
        return dict(content)
    present = [key for key in ENTRIES if isinstance(content, Mapping) and _is_state(content.get(key))]
    if not present:
        raise VitlabError(
            f"{path} contains no state dict; expected tensors by name, or one of the entries {', '.join(ENTRIES)}"
        )
    if len(present) > 1:
        warnings.warn(
            f"{path} contains weights under {', '.join(present)}; using {present[0]} (weights_entry= selects another)",
            stacklevel=5,
        )
    return dict(content[present[0]])


def _is_state(content: Any) -> bool:
    """Whether this is a mapping from names to tensors only."""
    return (
        isinstance(content, Mapping) and bool(content) and all(isinstance(value, Tensor) for value in content.values())
    )


def _without_prefixes(tensors: Mapping[str, Tensor], own: Mapping[str, Any]) -> dict[str, Tensor]:
    """Remove prefixes that all names of the tensors have and no name of the model has."""
    given = dict(tensors)
    while given:
        prefix = next((p for p in _PREFIXES if all(name.startswith(p) for name in given)), None)
        if prefix is None or any(name.startswith(prefix) for name in own):
            break
        given = {name.removeprefix(prefix): tensor for name, tensor in given.items()}
    return given


def _resized_classifier(model: nn.Module, given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> list[str]:
    """Names of the classifier's weights and biases, if only they differ in shape, and only in the number of classes.

    Only the output width of the last layer can differ alone: that of any other layer is also an input width.
    """
    differ = [name for name in own if name in given and given[name].shape != own[name].shape]
    last = {name.rpartition(".")[0] for name in differ}
    only_classes = all(given[name].shape[1:] == own[name].shape[1:] for name in differ)
    widths = {(given[name].shape[:1], own[name].shape[:1]) for name in differ}
    linear = all(isinstance(model.get_submodule(path), (nn.Linear, nn.Conv2d)) for path in last)
    return differ if only_classes and linear and len(widths) == 1 else []


def _difference(absent: Sequence[str], unexpected: Sequence[str]) -> str:
    """Describe missing and unexpected tensors; parts are listed by name."""
    problems = []
    extra_parts, missing_parts = parts_in(unexpected), parts_in(absent)
    if extra_parts:
        parts = "".join(f" | {name}(blocks=…)" for name in extra_parts)
        places = [name.partition(".vitlab_")[0] for name in unexpected if parts_in([name])]
        problems.append(
            f"it was saved with {', '.join(extra_parts)} at {', '.join(dict.fromkeys(places))}, which the model does "
            f"not have there; add '{parts}' to it"
        )
    if missing_parts:
        problems.append(f"it was saved without {', '.join(missing_parts)}, which the model has")
    for kind, names in (("missing", absent), ("unexpected", unexpected)):
        plain = [name for name in names if not parts_in([name])]
        if plain:
            problems.append(f"{len(plain)} {kind} tensors: {', '.join(plain[:4])}{', …' if len(plain) > 4 else ''}")
    return "; ".join(problems)


def _mismatch(model: nn.Module, path: str, why: str) -> VitlabError:
    return VitlabError(f"{path} does not fit {type(model).__name__}: {why}")
