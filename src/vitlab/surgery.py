"""Insert parts into an existing model in place (`retrofit`) and remove them (`restore`).

A part is registered as a child of the module at its seam, named `vitlab_<part>`, and one module-level hook calls it
by name. All state is on the model, so that parts are copied, saved and wrapped with it, and `restore` also works on a
deepcopy, an EMA copy or an unpickled model.

At the seam `attn` the part replaces the attention module under the same name, and stores the original, unregistered,
for `restore`.
"""

from __future__ import annotations

import copy
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vitlab.adapters import describe, token_kinds
from vitlab.adapters.noise import noise_outputs, relative_change
from vitlab.adapters.wrappers import guard_hooks, unwrap
from vitlab.core import plugins
from vitlab.core.anatomy import SEAMS, Anatomy, Block, Seam
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import PartCall, parse_part
from vitlab.core.settings import check_settings
from vitlab.fitted import configuration
from vitlab.identity import trained_origin
from vitlab.markers import mark, snake
from vitlab.modules.token_kinds import TokenKinds
from vitlab.recording.tokens import first_of, from_tokens, orders, to_tokens, with_first

__all__ = ["restore", "retrofit"]

Model = TypeVar("Model", bound=nn.Module)
Part = str | nn.Module | Callable[..., nn.Module]

_PREFIX = "vitlab_"
_KINDS = "vitlab_token_kinds"
_TOLERANCE = 0.01  # relative change of the outputs that is not reported
INJECTED = ("dim", "layout", "attention", "kinds")  # constructor parameters of a part that retrofit fills in


def retrofit(
    model: Model,
    part: Part,
    at: str | None = None,
    blocks: str | Sequence[int | str] | None = None,
    *,
    input_size: int | tuple[int, int] | None = None,
) -> Model:
    """Insert a part into a model, in place.

    Most parts change what trained weights compute. If the weights are known to be trained (`vitlab.load` of a file or
    of pretrained weights), the outputs on two noise images before and after are compared, and a change above 1 % is a
    warning. With random weights, and with weights of unknown origin, nothing is compared.

    Args:
        model: any model that `describe` supports; wrappers of `torch.compile` and DDP are removed first.
        part: a part's name or call as text (`"TokenAwarePooling(branches=4)"`), its class, or a module, which is
            copied for each block. A class may have the parameters `dim`, `layout`, `attention` and `kinds`
            (`modules/token_kinds.py`); these are filled in.
        at: the seam, for example `"mlp.out"`. Default: the part's default seam.
        blocks: `"all"` (default), `"upper"`, `"lower"`, `"6:12"`, `":30%"`, `"30%:"`, or a list of indices or names;
            `"not-tapped"` for the blocks of an assembly's backbone whose outputs do not feed its neck. Class attention
            is not counted.
        input_size: size of the images, for parts that depend on the grid. Default: the model's input size.

    Returns:
        The same model. It is unchanged if an error is raised.
    """
    name, make, settings, default, at, blocks = _parse(part, at, blocks)
    at = at or default
    if at is None:
        raise VitlabError(f"{name} has no default seam; expected at=SEAM, one of: {', '.join(map(repr, SEAMS))}")
    if at not in SEAMS:
        raise unknown("seam", at, SEAMS)
    inner = unwrap(model)
    anatomy = describe(inner, input_size)
    places = _select_seams(anatomy, at, "all" if blocks is None else blocks)
    # All parts are built before the first is inserted, so that an error leaves the model unchanged.
    kinds = _token_kinds(inner)
    fitted = [(block, seam, _build(inner, seam, name, make, settings or {}, kinds)) for block, seam in places]
    duplicates = [block.name for block, seam, module in fitted if _has_same(inner, seam, module, settings)]
    if duplicates:
        warnings.warn(f"{name} with the same settings is already at {at!r} of {', '.join(duplicates)}", stacklevel=2)
    with changes_reported(inner, trained_origin(inner), [name], input_size):
        for block, seam, module in fitted:
            module.vitlab_name, module.vitlab_block, module.vitlab_settings = name, block.name, settings
            _insert(inner, seam, snake(name), module)
        if kinds is not None and any(getattr(module, "kinds", None) is kinds for _, _, module in fitted):
            _insert_kinds(inner, kinds)
    guard_hooks()
    return model


@contextmanager
def changes_reported(
    model: nn.Module, origin: str, names: Sequence[str], input_size: int | tuple[int, int] | None = None
) -> Iterator[None]:
    """Warn on exit if parts that were inserted since changed the outputs on noise images by more than 1 %.

    Args:
        model: the model.
        origin: the origin of its weights if they are trained; if empty, nothing is computed.
        names: the names of the parts, for the warning.
        input_size: size of the images. Default: the model's input size.
    """
    if not origin or not names:
        yield
        return
    before = noise_outputs(model, input_size)
    yield
    change = relative_change(before, noise_outputs(model, input_size))
    if not change <= _TOLERANCE:
        amount = f"by {change:.0%}" if math.isfinite(change) else "and their number"
        warnings.warn(
            f"{', '.join(names)} changed the outputs of trained weights ({origin}) {amount} on noise images; "
            "fine-tune the model, and insert parts with identity_init=True to begin with unchanged outputs",
            stacklevel=5,
        )


def restore(model: Model) -> Model:
    """Remove every vitlab part from a model, in place: same outputs, state dict keys and module tree as before.

    Other hooks and children are unchanged. An attention module that a part replaced is restored with the current
    weights of the part (weights that the part does not have keep their values), on its device and in its precision.
    """
    for module in list(unwrap(model).modules()):
        for name, child in list(module._modules.items()):
            if child is not None and hasattr(child, "vitlab_original"):
                module._modules[name] = _restored_original(child)
            elif name.startswith(_PREFIX) and (hasattr(child, "vitlab_seam") or isinstance(child, TokenKinds)):
                del module._modules[name]
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, hook in hooks.items() if hook in (_before, _after, _update_kinds)]:
                del hooks[key]
                module._forward_hooks_with_kwargs.pop(key, None)
    guard_hooks()
    return model


# -- hooks: module-level functions, so that a model with parts can be pickled and copied ----------------------------


def _before(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return (_apply_parts(module, "in", arguments[0]), *arguments[1:])


def _after(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
    return with_first(output, _apply_parts(module, "out", first_of(output)))


def _update_kinds(module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
    getattr(module, _KINDS).update(arguments, keywords, output)


def _apply_parts(module: nn.Module, side: str, x: Tensor) -> Tensor:
    """Apply the parts on one side of a module to its first tensor, in order of insertion."""
    for name, child in module.named_children():
        if name.startswith(_PREFIX) and child.vitlab_side == side:
            x = _apply(child, x)
    return x


def _apply(part: Any, x: Tensor) -> Tensor:
    layout = part.vitlab_seam.layout
    if layout.order in ("BCHW", "BHWD") and hasattr(part, "layout"):
        grid = tuple(x.shape[2:]) if layout.order == "BCHW" else tuple(x.shape[1:3])
        if grid != layout.grid:
            raise VitlabError(
                f"{type(part).__name__} was fitted for a {layout.grid[0]}x{layout.grid[1]} grid, but got "
                f"{grid[0]}x{grid[1]}; retrofit again with input_size= set to the size of your images"
            )
    tokens = to_tokens(x, layout, getattr(part, "vitlab_inverse", None))
    mixed = part(tokens)
    if mixed.shape != tokens.shape:
        raise VitlabError(
            f"{type(part).__name__} returned shape {tuple(mixed.shape)}; expected its input shape {tuple(tokens.shape)}"
        )
    return from_tokens(mixed, layout, x, getattr(part, "vitlab_order", None))


# -- parsing the arguments of retrofit ------------------------------------------------------------------------------


def _parse(
    part: Part, at: str | None, blocks: Any
) -> tuple[str, Callable[..., nn.Module], dict[str, Any] | None, str | None, str | None, Any]:
    """Name, constructor, settings, default seam, seam and blocks of a part given as text, class or module.

    Settings are None for a module, because they are not known.
    """
    if isinstance(part, str):
        call = parse_part(part)
        for word, inside, outside in (("at", call.at, at), ("blocks", call.blocks, blocks)):
            if inside is not None and outside is not None:
                raise VitlabError(f"{word!r} is given twice, in {part!r} and as {word}={outside!r}; give it once")
        constructor = check_part(call)
        return (
            call.name,
            constructor,
            dict(call.settings),
            getattr(constructor, "default_seam", None),
            call.at or at,
            blocks if call.blocks is None else call.blocks,
        )
    if isinstance(part, nn.Module):
        return type(part).__name__, lambda: copy.deepcopy(part), None, getattr(part, "default_seam", None), at, blocks
    if callable(part):
        return getattr(part, "__name__", type(part).__name__), part, {}, getattr(part, "default_seam", None), at, blocks
    raise VitlabError(f"invalid part of type {type(part).__name__}; expected a name, a class or a torch.nn.Module")


def check_part(call: PartCall) -> Any:
    """Returns the class of a part; raises an error if there is none, or if one of the settings is not valid."""
    constructor = plugins.part(call.name)
    check_settings(call.name, constructor, call.settings, INJECTED)
    return constructor


def _select_seams(anatomy: Anatomy, at: str, blocks: Any) -> list[tuple[Block, Seam]]:
    """The selected blocks and their seams of that name; warns or raises an error for blocks without it."""
    mixing = [block for block in anatomy.blocks if block.mixer.kind != "class attention"]
    if at == "stage.out":
        mixing = [block for block in mixing if block.seam(at)]
    chosen = _not_tapped(anatomy, mixing) if blocks == "not-tapped" else _select_blocks(mixing, blocks)
    seams = [(block, block.seam(at)) for block in chosen]
    missing = [block.name for block, seam in seams if seam is None]
    if len(missing) == len(seams):
        why = anatomy.absent.get(at)
        raise VitlabError(
            f"no seam {at!r} in {'these blocks of ' if at in anatomy.seams else ''}family {anatomy.family!r}"
            + (f" ({why})" if why else "")
            + f"; it has: {', '.join(anatomy.seams)}"
        )
    if missing and not isinstance(blocks, str):
        raise VitlabError(
            f"no seam {at!r} in {', '.join(missing)} of family {anatomy.family!r}; omit them from blocks="
        )
    if missing:
        warnings.warn(
            f"{len(missing)} of {len(seams)} blocks have no seam {at!r} and are skipped: {', '.join(missing)}",
            stacklevel=3,
        )
    return [(block, seam) for block, seam in seams if seam is not None]


def _not_tapped(anatomy: Anatomy, blocks: list[Block]) -> list[Block]:
    if not anatomy.tapped:
        raise VitlabError(
            "invalid blocks='not-tapped': the model is not an assembly, so that no block feeds a neck; use 'all'"
        )
    chosen = [block for block in blocks if block.name not in anatomy.tapped]
    if not chosen:
        raise VitlabError("invalid blocks='not-tapped': all blocks feed the neck; choose other taps")
    return chosen


_RANGE = re.compile(r"^(\d+%?)?:(\d+%?)?$")


def _select_blocks(blocks: list[Block], spec: Any) -> list[Block]:
    """The blocks that a specification selects, in execution order."""
    count, names = len(blocks), [block.name for block in blocks]
    expected = "expected 'all', 'upper', 'lower', a range such as '6:12' or ':30%', or a list of indices or names"
    if isinstance(spec, str):
        if spec in ("all", "upper", "lower"):
            half = count // 2
            return {"all": blocks, "upper": blocks[half:], "lower": blocks[:half]}[spec]
        match = _RANGE.match(spec.replace(" ", ""))
        if match is None:
            raise VitlabError(f"invalid blocks={spec!r}; {expected}")
        start, stop = (_bound(bound, count) for bound in match.groups())
        chosen = blocks[start:stop]
        if not chosen:
            raise VitlabError(f"invalid blocks={spec!r}: the range is empty; the model has {count} token-mixing blocks")
        return chosen
    if not isinstance(spec, Sequence) or not spec:
        raise VitlabError(f"invalid blocks={spec!r}; {expected}")
    selected = set()
    for item in spec:
        if isinstance(item, str):
            if item not in names:
                raise unknown("block", item, names)
            selected.add(names.index(item))
        elif isinstance(item, int) and not isinstance(item, bool) and -count <= item < count:
            selected.add(item % count)
        else:
            raise VitlabError(f"no block {item!r}; the model has {count} token-mixing blocks, 0 to {count - 1}")
    return [blocks[i] for i in sorted(selected)]


def _bound(text: str | None, count: int) -> int | None:
    """A bound of a range: a number of blocks, or a share of them, rounded half up."""
    if text is None:
        return None
    return int(int(text[:-1]) * count / 100 + 0.5) if text.endswith("%") else int(text)


# -- building and inserting parts -----------------------------------------------------------------------------------


def _build(
    model: nn.Module,
    seam: Seam,
    name: str,
    make: Callable[..., nn.Module],
    settings: dict[str, Any],
    kinds: TokenKinds | None,
) -> Any:
    """Build a part for one seam, on the device, in the precision and in the training mode of the model there."""
    host = model.get_submodule(seam.path)
    if seam.side == "replace" and (hasattr(host, "vitlab_original") or any(True for _ in _children(host))):
        raise VitlabError(
            f"{seam.path} already has a part; restore the model, then insert {name} before the other parts"
        )
    if seam.side != "replace" and isinstance(host, (nn.Sequential, nn.ModuleList)):
        raise AssertionError(
            f"the adapter defines {seam.name} at the container {seam.path}, which would run the part twice"
        )
    accepted = _parameters(make)
    if accepted is not None:
        unknown_settings = [key for key in settings if key not in accepted or key in INJECTED]
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
        injected = {"dim": seam.dim, "layout": seam.layout, "attention": host, "kinds": kinds}
        settings = {**settings, **{key: value for key, value in injected.items() if key in accepted}}
    try:
        part: Any = make(**settings)
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


def _parameters(make: Callable[..., nn.Module]) -> list[str] | None:
    """The names of a constructor's parameters, or None if it accepts **kwargs."""
    parameters = inspect.signature(make).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters]


def _insert(model: nn.Module, seam: Seam, name: str, part: Any) -> None:
    part.vitlab_seam = seam
    part.vitlab_side = seam.side
    host = model.get_submodule(seam.path)
    weight = next(iter(model.parameters()), torch.empty(0))
    if seam.side == "replace":
        mark(part, _PREFIX + name, host, weight.device)
        part.vitlab_original = (host,)  # in a tuple, so that it is not registered as a submodule
        parent, _, child = seam.path.rpartition(".")
        model.get_submodule(parent)._modules[child] = part
        return
    mark(part, "marker", None, weight.device)
    if seam.layout.permutation is not None and not seam.layout.shuffled:
        order, inverse = orders(seam.layout, weight.device)
        part.register_buffer("vitlab_order", order, persistent=False)
        part.register_buffer("vitlab_inverse", inverse, persistent=False)
    host.add_module(_unused_name(host, _PREFIX + name), part)
    if seam.side == "in" and _before not in host._forward_pre_hooks.values():
        host.register_forward_pre_hook(_before)
    if seam.side == "out" and _after not in host._forward_hooks.values():
        # Prepended, so that later hooks see the part's output: transformers collects hidden states with hooks.
        host.register_forward_hook(_after, prepend=True)


def _token_kinds(model: nn.Module) -> TokenKinds | None:
    """The kinds of the tokens that the parts of a model share; None if the model has image tokens only."""
    found = token_kinds(model)
    if found is None:
        return None
    path, read = found
    existing: Any = getattr(model.get_submodule(path), _KINDS, None)
    return existing or TokenKinds(read)


def _insert_kinds(model: nn.Module, kinds: TokenKinds) -> None:
    found = token_kinds(model)
    host = model.get_submodule(found[0]) if found is not None else model
    if not hasattr(host, _KINDS):
        host.add_module(_KINDS, kinds)
        host.register_forward_hook(_update_kinds, with_kwargs=True)


def _restored_original(part: Any) -> nn.Module:
    original: nn.Module = part.vitlab_original[0]
    if hasattr(part, "give_back"):  # a part with copies of weights writes their current values to the original
        part.give_back(original)
    weight = next((p for p in part.parameters() if p.is_floating_point()), None)
    if weight is not None:
        original.to(weight.device, weight.dtype)
    return original.train(part.training)


def _children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return ((name, child) for name, child in module.named_children() if name.startswith(_PREFIX))


def _has_same(model: nn.Module, seam: Seam, part: nn.Module, settings: dict[str, Any] | None) -> bool:
    """Whether the seam already has a part of the same class, settings and configuration."""
    existing = [vars(child) | {"part": child} for _, child in _children(model.get_submodule(seam.path))]
    return any(
        type(child["part"]) is type(part)
        and (child.get("vitlab_seam"), child.get("vitlab_settings")) == (seam, settings)
        and configuration(child["part"]) == configuration(part)
        for child in existing
    )


def _unused_name(module: nn.Module, name: str) -> str:
    used = dict(_children(module))
    if name not in used:
        return name
    return next(f"{name}_{i}" for i in range(2, len(used) + 3) if f"{name}_{i}" not in used)
