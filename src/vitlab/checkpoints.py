"""Weights in files: safetensors, and PyTorch's own format read without unpickling; and how they get into a model."""

from __future__ import annotations

import argparse
import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.core.errors import VitlabError, unknown
from vitlab.core.store import read_tensors
from vitlab.markers import parts_in

#: Entries of a training checkpoint that hold the weights, in order of preference. Averaged weights (`…ema`) are taken
#: only where there are no others, or where they are asked for.
ENTRIES = ("state_dict", "model", "model_state_dict", "model_state", "model_ema", "state_dict_ema", "ema")
#: Prefixes that DataParallel, `torch.compile` and Lightning put before every name.
_PREFIXES = ("module.", "_orig_mod.", "model.")
_PYTORCH = (".pth", ".pt", ".bin", ".ckpt", ".tar")


def read_weights(path: str | Path, entry: str | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file by name, and what `write_tensors` said of them.

    Args:
        path: a safetensors file, or one of `torch.save` (.pth, .pt, .bin, .ckpt, .tar). The latter is read with
            `weights_only=True`: a file that holds more than tensors and plain values is refused, and nothing in it is
            run.
        entry: which entry of a training checkpoint holds the weights; by default the first of `ENTRIES` that is there.
    """
    if Path(path).suffix not in _PYTORCH or not Path(path).is_file():
        if entry is not None:
            raise VitlabError(f"weights_entry={entry!r} is for files of torch.save; {path} is none")
        return read_tensors(path)
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):  # training scripts keep their options in one
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise VitlabError(
            f"{path} cannot be read as tensors alone ({reason}), and other pickled objects are not read; "
            "save its state dict by itself, best as safetensors"
        ) from error
    return _weights_in(found, str(path), entry), {}


def fill(model: nn.Module, tensors: Mapping[str, Tensor], path: str, *, new_head: bool = False) -> bool:
    """Load weights into a model; whatever does not fit is an error.

    Args:
        model: changed in place.
        tensors: the weights by name.
        path: where they are from, for errors.
        new_head: whether a classifier of another number of classes may keep its own, random weights, with a warning.

    Returns:
        Whether it kept them.
    """
    own = model.state_dict()
    given = _without_prefixes(tensors, own)
    head = _other_classes(model, given, own) if new_head else []
    for name in head:
        del given[name]
    try:
        missing, unexpected = model.load_state_dict(given, strict=False)
    except RuntimeError as error:
        raise _misfit(model, path, " ".join(str(error).split())[:300]) from error
    absent = [name for name in missing if name not in head]
    if absent or unexpected:
        raise _misfit(model, path, _difference(absent, unexpected))
    if head:
        warnings.warn(
            f"{path} is of a model with another number of classes: {', '.join(head)} keep their random initial values",
            stacklevel=4,
        )
    return bool(head)


def _weights_in(found: Any, path: str, entry: str | None) -> dict[str, Tensor]:
    """The weights of a file of `torch.save`: all of it, or one entry of it."""
    if entry is not None:
        entries = [str(key) for key, value in found.items() if _is_state(value)] if isinstance(found, Mapping) else []
        if entry not in entries:
            raise unknown(f"entry with weights in {path}", entry, entries)
        return dict(found[entry])
    if _is_state(found):
        return dict(found)
    there = [key for key in ENTRIES if isinstance(found, Mapping) and _is_state(found.get(key))]
    if not there:
        raise VitlabError(f"{path} holds no state dict; expected tensors by name, or an entry of: {', '.join(ENTRIES)}")
    if len(there) > 1:
        warnings.warn(
            f"{path} holds weights under {', '.join(there)}; {there[0]} is taken (weights_entry= chooses another)",
            stacklevel=5,
        )
    return dict(found[there[0]])


def _is_state(found: Any) -> bool:
    """Whether this is tensors by name, and nothing else."""
    return isinstance(found, Mapping) and bool(found) and all(isinstance(value, Tensor) for value in found.values())


def _without_prefixes(tensors: Mapping[str, Tensor], own: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors without prefixes that all their names have and no name of the model has."""
    given = dict(tensors)
    while given:
        prefix = next((p for p in _PREFIXES if all(name.startswith(p) for name in given)), None)
        if prefix is None or any(name.startswith(prefix) for name in own):
            break
        given = {name.removeprefix(prefix): tensor for name, tensor in given.items()}
    return given


def _other_classes(model: nn.Module, given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> list[str]:
    """The weights and biases of classifiers, where these and nothing else differ, in the number of classes.

    Only the width of the last layer can change by itself: that of any other is also that of what comes after.
    """
    differ = [name for name in own if name in given and given[name].shape != own[name].shape]
    last = {name.rpartition(".")[0] for name in differ}
    only_classes = all(given[name].shape[1:] == own[name].shape[1:] for name in differ)
    widths = {(given[name].shape[:1], own[name].shape[:1]) for name in differ}
    linear = all(isinstance(model.get_submodule(path), (nn.Linear, nn.Conv2d)) for path in last)
    return differ if only_classes and linear and len(widths) == 1 else []


def _difference(absent: Sequence[str], unexpected: Sequence[str]) -> str:
    """What a file lacks and what it has too much of, in words; parts by their names."""
    said = []
    foreign, lacking = parts_in(unexpected), parts_in(absent)
    if foreign:
        wanted = "".join(f" | {name}" for name in foreign)
        said.append(f"it was saved with {', '.join(foreign)}, which the model does not have; add '{wanted}' to it")
    if lacking:
        said.append(f"it was saved without {', '.join(lacking)}, which the model has")
    for what, names in (("lacks", absent), ("does not know", unexpected)):
        plain = [name for name in names if not parts_in([name])]
        if plain:
            who = "it" if what == "lacks" else "the model"
            said.append(f"{who} {what} {len(plain)} tensors: {', '.join(plain[:4])}{', …' if len(plain) > 4 else ''}")
    return "; ".join(said)


def _misfit(model: nn.Module, path: str, why: str) -> VitlabError:
    return VitlabError(f"{path} does not fit {type(model).__name__}: {why}")
