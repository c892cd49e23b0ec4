"""Build a part: its name, constructor and settings, and the module for one seam."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from vitlab.core import plugins
from vitlab.core.anatomy import Seam
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import PartCall, parse_part
from vitlab.core.settings import check_settings, check_value
from vitlab.modules.token_kinds import TokenKinds
from vitlab.surgery.hooks import parts_at

Part = str | nn.Module | Callable[..., nn.Module]

INJECTED = ("dim", "layout", "attention", "kinds")  # constructor parameters of a part that retrofit fills in


class Request(NamedTuple):
    """A part as it is given to `retrofit`.

    Args:
        name: name of the part.
        make: its constructor.
        settings: settings of the constructor; None for a module, because they are not known.
        at: the seam, or the part's default seam.
        blocks: the selection of blocks.
    """

    name: str
    make: Callable[..., nn.Module]
    settings: dict[str, Any] | None
    at: str | None
    blocks: Any


def parse(part: Part, at: str | None, blocks: Any) -> Request:
    """Parse a part given as text, class or module."""
    check_value("retrofit", "at", at, str | None)
    if isinstance(part, str):
        call = parse_part(part)
        for word, inside, outside in (("at", call.at, at), ("blocks", call.blocks, blocks)):
            if inside is not None and outside is not None:
                raise VitlabError(f"{word!r} is given twice, in {part!r} and as {word}={outside!r}; give it once")
        make = check_part(call)
        at, blocks = at if call.at is None else call.at, blocks if call.blocks is None else call.blocks
        return Request(call.name, make, dict(call.settings), _default_seam(make) if at is None else at, blocks)
    at = _default_seam(part) if at is None else at
    if isinstance(part, nn.Module):
        return Request(type(part).__name__, lambda: copy.deepcopy(part), None, at, blocks)
    if callable(part):
        return Request(getattr(part, "__name__", type(part).__name__), part, {}, at, blocks)
    raise VitlabError(f"invalid part of type {type(part).__name__}; expected a name, a class or a torch.nn.Module")


def _default_seam(part: Any) -> str | None:
    seam: str | None = getattr(part, "default_seam", None)
    return seam


def check_part(call: PartCall) -> Any:
    """Returns the class of a part; raises an error if there is none, or if one of the settings is not valid."""
    constructor = plugins.part(call.name)
    check_settings(call.name, constructor, call.settings, INJECTED)
    return constructor


def build_part(model: nn.Module, seam: Seam, request: Request, kinds: TokenKinds | None) -> Any:
    """Build a part for one seam, on the device, in the precision and in the training mode of the model there."""
    name, host = request.name, model.get_submodule(seam.path)
    if seam.side == "replace" and (hasattr(host, "vitlab_original") or any(parts_at(host))):
        raise VitlabError(
            f"{seam.path} already has a part; restore the model, then insert {name} before the other parts"
        )
    if seam.side != "replace" and isinstance(host, (nn.Sequential, nn.ModuleList)):
        raise AssertionError(
            f"the adapter defines {seam.name} at the container {seam.path}, which would run the part twice"
        )
    settings = dict(request.settings or {})
    accepted = _parameters(request.make)
    if accepted is not None:
        _check_seam(request, accepted, seam, model)
        injected = {"dim": seam.dim, "layout": seam.layout, "attention": host, "kinds": kinds}
        settings |= {key: value for key, value in injected.items() if key in accepted}
    try:
        part: Any = request.make(**settings)
    except VitlabError:
        raise
    except Exception as error:  # any error of a part's constructor is about the user's settings
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise VitlabError(f"{name} could not be built: {reason}") from error
    if hasattr(part, "kinds"):  # a given module has none, or those of another model
        part.kinds = kinds
    if not isinstance(part, nn.Module):
        raise VitlabError(f"{name} returned {type(part).__name__}; expected a torch.nn.Module")
    weight = next((p for p in (*host.parameters(), *model.parameters()) if p.is_floating_point()), None)
    if weight is not None and seam.side != "replace":
        part.to(weight.device, weight.dtype)
    return part.train(model.training)


def _check_seam(request: Request, accepted: list[str], seam: Seam, model: nn.Module) -> None:
    """Raise an error for unknown settings, and for a part that does not fit the seam.

    Args:
        request: the part and its settings.
        accepted: the names of its constructor's parameters.
        seam: the seam.
        model: the model, for errors.
    """
    name = request.name
    unknown_settings = [key for key in request.settings or {} if key not in accepted or key in INJECTED]
    if unknown_settings:
        raise unknown(f"setting of {name}", unknown_settings[0], [key for key in accepted if key not in INJECTED])
    if ("attention" in accepted) != (seam.side == "replace"):
        raise VitlabError(
            f"invalid at={seam.name!r}: {name} replaces the attention module; use at='attn'"
            if "attention" in accepted
            else f"invalid at='attn': {name} cannot replace an attention module; use another seam"
        )
    if "layout" in accepted and seam.layout.shuffled:
        raise VitlabError(
            f"{name} needs the token layout, and {type(model).__name__} shuffles its patches; "
            "use a part without the parameter layout"
        )


def _parameters(make: Callable[..., nn.Module]) -> list[str] | None:
    """The names of a constructor's parameters, or None if it accepts **kwargs."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except ValueError:  # a function of C code, such as torch.relu
        raise VitlabError(f"{make!r} is not a part; expected a name, a class or a torch.nn.Module") from None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters]
