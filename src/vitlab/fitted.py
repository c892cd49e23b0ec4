"""Which parts are fitted into a model, read from the model itself."""

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
        seam: where it is, for example `mlp.out`.
        block: the block that it is in, for example `blocks.3`; empty where this is not known.
        path: the part's own path in the module tree.
        settings: the settings that it was made with, without defaults; None where a finished module was given.
    """

    name: str
    kind: type[nn.Module]
    seam: str
    block: str
    path: str
    settings: Mapping[str, Any] | None


def parts(model: nn.Module) -> tuple[FittedPart, ...]:
    """The parts that `retrofit` put into a model, in the order of the module tree.

    Args:
        model: any model; wrappers of `torch.compile` and DDP are looked through.

    >>> parts(nn.Linear(2, 2))
    ()
    """
    found = []
    for path, module in unwrap(model).named_modules():
        kept = vars(module)
        if "vitlab_seam" in kept:
            name = kept.get("vitlab_name", type(module).__name__)
            block, settings = kept.get("vitlab_block", ""), kept.get("vitlab_settings")
            found.append(FittedPart(name, type(module), kept["vitlab_seam"].name, block, path, settings))
    return tuple(found)


def by_kind(fitted: Iterable[FittedPart]) -> list[dict[str, Any]]:
    """Parts that differ in their block only, as one entry of plain data: name, seam, settings, blocks."""
    entries: list[dict[str, Any]] = []
    for part in fitted:
        settings = None if part.settings is None else {key: _plain(value) for key, value in part.settings.items()}
        about = {"name": part.name, "seam": part.seam, "settings": settings}
        alike = next((entry for entry in entries if {**about, "blocks": entry["blocks"]} == entry), None)
        if alike is None:
            entries.append({**about, "blocks": [part.block]})
        else:
            alike["blocks"].append(part.block)
    return entries


def configuration(part: nn.Module) -> list[tuple[str, str, Any]]:
    """What a part computes with beside its tensors: the plain attributes of all its modules, sorted by name."""
    return sorted(
        (path, name, repr(value))
        for path, module in part.named_modules()
        for name, value in vars(module).items()
        if name != "training" and not name.startswith(("_", "vitlab_")) and _is_plain(value)
    )


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _plain(value: Any) -> Any:
    """The value as JSON can say it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return value if _is_plain(value) else repr(value)
