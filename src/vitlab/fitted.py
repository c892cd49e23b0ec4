"""List the parts that are fitted into a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from vitlab.adapters.wrappers import unwrap

__all__ = ["FittedPart", "parts"]


@dataclass(frozen=True)
class FittedPart:
    """One part in a model.

    Args:
        name: the part's name, for example `ContextBroadcast`.
        kind: its class.
        seam: its seam, for example `mlp.out`.
        block: its block, for example `blocks.3`; empty if not known.
        path: the part's path in the module tree.
        settings: the settings given to its constructor, without defaults; None if a module was given.
    """

    name: str
    kind: type[nn.Module]
    seam: str
    block: str
    path: str
    settings: Mapping[str, Any] | None


def parts(model: nn.Module) -> tuple[FittedPart, ...]:
    """The parts that `retrofit` inserted into a model, in the order of the module tree.

    Args:
        model: any model; wrappers of `torch.compile` and DDP are removed first.

    >>> parts(nn.Linear(2, 2))
    ()
    """
    result = []
    for path, module in unwrap(model).named_modules():
        attributes = vars(module)
        if "vitlab_seam" in attributes:
            name = attributes.get("vitlab_name", type(module).__name__)
            block, settings = attributes.get("vitlab_block", ""), attributes.get("vitlab_settings")
            result.append(FittedPart(name, type(module), attributes["vitlab_seam"].name, block, path, settings))
    return tuple(result)


def by_kind(fitted: Iterable[FittedPart]) -> list[dict[str, Any]]:
    """Group parts that differ in their block only; entries of JSON types: name, seam, settings, blocks."""
    entries: list[dict[str, Any]] = []
    for part in fitted:
        settings = None if part.settings is None else {key: _plain(value) for key, value in part.settings.items()}
        description = {"name": part.name, "seam": part.seam, "settings": settings}
        same = next((entry for entry in entries if {**description, "blocks": entry["blocks"]} == entry), None)
        if same is None:
            entries.append({**description, "blocks": [part.block]})
        else:
            same["blocks"].append(part.block)
    return entries


def configuration(part: nn.Module) -> list[tuple[str, str, Any]]:
    """The configuration of a part or model beside its tensors: plain attributes of all its modules, sorted by name."""
    return sorted(
        (path, name, repr(value))
        for path, module in part.named_modules()
        for name, value in vars(module).items()
        if name not in _OMITTED and not name.startswith(("_", "vitlab_")) and _is_plain(value)
    )


#: Attributes that are not part of the configuration. `kinds` is None or describes the tokens of a forward; digests of
#: weights that were made before it existed stay the same.
_OMITTED = ("training", "kinds")


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _plain(value: Any) -> Any:
    """Convert a value to JSON types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return value if _is_plain(value) else repr(value)
