"""Short names of the parts of the papers for recipes, and where in a block they are inserted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from vitlab.core.bounds import Choices, Range
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import ModelExpression, PartCall, parse_part

Value = TypeVar("Value")

#: Short name -> part, its settings, and its blocks. CB is used in "the upper layers", whose number is not published:
#: the upper half is our choice. CB_S is used in all blocks, as its "0.02 %" more parameters show, and so are the gated
#: and hybrid forms (Table S5). All blocks for SE and the uniform heads are our choice.
PARTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "cb": ("ContextBroadcast", {}, "upper"),
    "cb_s": ("ScaledContextBroadcast", {}, "all"),
    "cb_gate": ("GatedContextBroadcast", {}, "all"),
    "cb_hybrid": ("HybridContextBroadcast", {}, "all"),
    "se": ("SqueezeExcite", {}, "all"),
    "uniform_a": ("UniformHead", {"form": "A"}, "all"),
    "uniform_b": ("UniformHead", {"form": "B"}, "all"),
    "uniform_c": ("UniformHead", {"form": "C"}, "all"),
    "tap": ("TokenAwarePooling", {}, "all"),
}

#: The positions of CB's Tables 4, S5 and S6 -> seams.
POSITIONS: dict[str, tuple[str | None, ...]] = {
    "": (None,),
    "front": ("mlp.in",),
    "mid": ("mlp.mid",),
    "end": ("mlp.out",),
    "attention": ("attn.out",),
    "both": ("mlp.out", "attn.out"),
}

#: Settings that several recipes have.
PartName = Annotated[str, Choices(("", *PARTS))]
Position = Annotated[str, Choices(tuple(POSITIONS))]
Heads = Annotated[int, Range(1, 1024)]
OwnHeads = Annotated[int, Range(0, 1024)]
Epochs = Annotated[int, Range(1, 90_000)]
Width = Annotated[int, Range(1, 8192)]
Scenes = Annotated[int, Range(4, 10**6)]


def parts(name: str, position: str = "", blocks: str = "") -> tuple[PartCall, ...]:
    """Returns the part calls of a short name, or of a part with settings; an empty tuple for the empty name.

    >>> [str(call) for call in parts("cb")]
    ["ContextBroadcast(blocks='upper')"]
    >>> len(parts("cb_gate", "both")), parts("")
    (2, ())
    >>> str(parts("TokenAwarePooling(branches=3)", blocks="upper")[0])
    "TokenAwarePooling(branches=3, blocks='upper')"
    """
    seams = choose("position", position, POSITIONS)
    if not name:
        if position or blocks:
            raise VitlabError(
                f"position={position!r} and blocks={blocks!r} need a part; give part= one of: {', '.join(PARTS)}"
            )
        return ()
    if name not in PARTS and "(" in name:
        call = parse_part(name)
        if blocks and call.blocks is not None:
            raise VitlabError(f"'blocks' is given twice, in {name!r} and as blocks={blocks!r}; give it once")
        return tuple(replace(call, at=seam or call.at, blocks=call.blocks or blocks or None) for seam in seams)
    kind, settings, usual = choose("part", name, PARTS)
    return tuple(PartCall(kind, settings, seam, blocks or usual) for seam in seams)


def identity_parts(name: str, blocks: str = "") -> tuple[PartCall, ...]:
    """Returns the part calls with identity initialisation, unless they set it themselves.

    >>> str(identity_parts("tap")[0])
    "TokenAwarePooling(identity_init=True, blocks='all')"
    """
    calls = parts(name, blocks=blocks)
    return tuple(replace(call, settings={"identity_init": True, **call.settings}) for call in calls)


def model(source: str, name: str, settings: Mapping[str, Any], *calls: PartCall) -> str:
    """Returns a model expression as text; settings that are 0, False, empty or None are omitted.

    >>> model("timm", "deit_tiny_patch16_224", {"drop_path_rate": 0.1, "num_heads": 0}, *parts("cb_s"))
    "timm/deit_tiny_patch16_224(drop_path_rate=0.1) | ScaledContextBroadcast(blocks='all')"
    """
    return str(ModelExpression(source, name, {key: value for key, value in settings.items() if value}, calls))


def choose(kind: str, given: object, table: Mapping[str, Value]) -> Value:
    """Returns the entry of that name; raises an error that lists the names if there is none."""
    if not isinstance(given, str) or given not in table:
        raise unknown(kind, given, [name or "''" for name in table])
    return table[given]
