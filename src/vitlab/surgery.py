"""Retrofit and restore: put a part into a model that exists, in place, and take it out again.

A part becomes a registered child of the module at its seam, named `vitlab_<part>`, and one module-level hook calls
it by name. Nothing else is kept anywhere: whatever copies, saves or wraps the model copies, saves and wraps the parts,
and `restore` finds them on a deepcopy, an EMA copy or an unpickled model just as well.

At the seam `attn` there is nothing to call beside: the part takes the attention module's place and name, and keeps
the original, unregistered, for `restore`.
"""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.adapters.wrappers import guard_hooks, unwrap
from vitlab.core import plugins
from vitlab.core.anatomy import SEAMS, Anatomy, Block, Seam
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import parse_part
from vitlab.fitted import configuration
from vitlab.markers import mark, snake
from vitlab.recording.tokens import from_tokens, orders, to_tokens

__all__ = ["restore", "retrofit"]

Model = TypeVar("Model", bound=nn.Module)
Part = str | nn.Module | Callable[..., nn.Module]

_PREFIX = "vitlab_"
_GIVEN = ("dim", "layout", "attention")  # what a part's constructor may ask for by name


def retrofit(
    model: Model,
    part: Part,
    at: str | None = None,
    blocks: str | Sequence[int | str] | None = None,
    *,
    input_size: int | tuple[int, int] | None = None,
) -> Model:
    """Put a part into a model, in place.

    Args:
        model: any model that `describe` can read; wrappers of `torch.compile` and DDP are looked through.
        part: a part's name or call as text (`"TokenAwarePooling(branches=4)"`), its class, or a module, of which each
            block gets a copy. A class is asked for what it wants by parameter name: `dim`, `layout`, `attention`.
        at: the seam, for example `"mlp.out"`; each part has its own default.
        blocks: `"all"` (default), `"upper"`, `"lower"`, `"6:12"`, `":30%"`, `"30%:"`, or a list of indices or names.
            Class attention is not counted.
        input_size: size of the images, where it is not the model's own; parts that need the grid are fitted to it.

    Returns:
        The same model. After an error it is untouched.
    """
    name, make, settings, default, at, blocks = _read(part, at, blocks)
    at = at or default
    if at is None:
        raise VitlabError(f"{name} has no default seam; give one of: at={', '.join(map(repr, SEAMS))}")
    if at not in SEAMS:
        raise unknown("seam", at, SEAMS)
    inner = unwrap(model)
    anatomy = describe(inner, input_size)
    places = _places(anatomy, at, "all" if blocks is None else blocks)
    # All are built before any goes in.
    fitted = [(block, seam, _fit(inner, seam, name, make, settings or {})) for block, seam in places]
    twice = [block.name for block, seam, module in fitted if _has_same(inner, seam, module, settings)]
    if twice:
        warnings.warn(f"{name} with the same settings is already at {at!r} of {', '.join(twice)}", stacklevel=2)
    for block, seam, module in fitted:
        module.vitlab_name, module.vitlab_block, module.vitlab_settings = name, block.name, settings
        _insert(inner, seam, snake(name), module)
    guard_hooks()
    return model


def restore(model: Model) -> Model:
    """Take every part of ours out of a model, in place: same outputs, same keys, same module tree as before.

    Hooks and children of others are left alone. An attention module that a part replaced comes back with the weights
    that the part has now (those that the part dropped are as they were), on its device and in its precision.
    """
    for module in list(unwrap(model).modules()):
        for name, child in list(module._modules.items()):
            if child is not None and hasattr(child, "vitlab_original"):
                module._modules[name] = _original(child)
            elif name.startswith(_PREFIX) and hasattr(child, "vitlab_seam"):
                del module._modules[name]
        for hooks, ours in ((module._forward_pre_hooks, _before), (module._forward_hooks, _after)):
            for key in [key for key, hook in hooks.items() if hook is ours]:
                del hooks[key]
    guard_hooks()
    return model


# -- the two hooks: module-level functions, so that a model with parts can be pickled and copied --------------------


def _before(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return _through(module, "in", arguments)


def _after(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
    return _through(module, "out", output) if isinstance(output, tuple) else _through(module, "out", (output,))[0]


def _through(module: nn.Module, side: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Send the first of some values through the parts on one side of a module, in order of insertion."""
    x, *rest = values
    for name, child in module.named_children():
        if name.startswith(_PREFIX) and child.vitlab_side == side:
            x = _apply(child, x)
    return (x, *rest)


def _apply(part: Any, x: Tensor) -> Tensor:
    layout = part.vitlab_seam.layout
    if layout.order in ("BCHW", "BHWD") and hasattr(part, "layout"):
        grid = tuple(x.shape[2:]) if layout.order == "BCHW" else tuple(x.shape[1:3])
        if grid != layout.grid:
            raise VitlabError(
                f"{type(part).__name__} was fitted for a {layout.grid[0]}x{layout.grid[1]} grid, but got one of "
                f"{grid[0]}x{grid[1]}; retrofit again with input_size= set to the size that you feed"
            )
    tokens = to_tokens(x, layout, getattr(part, "vitlab_inverse", None))
    mixed = part(tokens)
    if mixed.shape != tokens.shape:
        raise VitlabError(
            f"{type(part).__name__} made {tuple(mixed.shape)} of {tuple(tokens.shape)}; a part keeps the shape"
        )
    return from_tokens(mixed, layout, x, getattr(part, "vitlab_order", None))


# -- reading what the user asked for --------------------------------------------------------------------------------


def _read(
    part: Part, at: str | None, blocks: Any
) -> tuple[str, Callable[..., nn.Module], dict[str, Any] | None, str | None, str | None, Any]:
    """Name, constructor, settings, default seam, seam and blocks of a part, however it was given.

    The settings of a finished module are not known: None.
    """
    if isinstance(part, str):
        call = parse_part(part)
        for word, inside, outside in (("at", call.at, at), ("blocks", call.blocks, blocks)):
            if inside is not None and outside is not None:
                raise VitlabError(f"{word!r} is given twice, in {part!r} and beside it; give it once")
        made = plugins.part(call.name)
        return (
            call.name,
            made,
            dict(call.settings),
            made.default_seam,
            call.at or at,
            blocks if call.blocks is None else call.blocks,
        )
    if isinstance(part, nn.Module):
        return type(part).__name__, lambda: copy.deepcopy(part), None, getattr(part, "default_seam", None), at, blocks
    if callable(part):
        return getattr(part, "__name__", type(part).__name__), part, {}, getattr(part, "default_seam", None), at, blocks
    raise VitlabError(f"a part is a name, a class or a module, not {type(part).__name__}")


def _places(anatomy: Anatomy, at: str, blocks: Any) -> list[tuple[Block, Seam]]:
    """The chosen blocks and their seams of that name; says so where some of them do not have it."""
    mixing = [block for block in anatomy.blocks if block.mixer.kind != "class attention"]
    if at == "stage.out":
        mixing = [block for block in mixing if block.seam(at)]
    chosen = _choose(mixing, blocks)
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
            f"no seam {at!r} in {', '.join(missing)} of family {anatomy.family!r}; leave them out of blocks"
        )
    if missing:
        warnings.warn(
            f"{len(missing)} of {len(seams)} blocks have no seam {at!r} and stay plain: {', '.join(missing)}",
            stacklevel=3,
        )
    return [(block, seam) for block, seam in seams if seam is not None]


_RANGE = re.compile(r"^(\d+%?)?:(\d+%?)?$")


def _choose(blocks: list[Block], spec: Any) -> list[Block]:
    """The blocks that a specification names, in execution order."""
    count, names = len(blocks), [block.name for block in blocks]
    help = "write 'all', 'upper', 'lower', a range like '6:12' or ':30%', or a list"
    if isinstance(spec, str):
        if spec in ("all", "upper", "lower"):
            half = count // 2
            return {"all": blocks, "upper": blocks[half:], "lower": blocks[:half]}[spec]
        match = _RANGE.match(spec.replace(" ", ""))
        if match is None:
            raise VitlabError(f"blocks={spec!r} is not understood; {help}")
        start, stop = (_bound(bound, count) for bound in match.groups())
        chosen = blocks[start:stop]
        if not chosen:
            raise VitlabError(f"blocks={spec!r} is empty; the model has {count} token-mixing blocks")
        return chosen
    if not isinstance(spec, Sequence) or not spec:
        raise VitlabError(f"blocks={spec!r} is not understood; {help}")
    wanted = set()
    for item in spec:
        if isinstance(item, str):
            if item not in names:
                raise unknown("block", item, names)
            wanted.add(names.index(item))
        elif isinstance(item, int) and not isinstance(item, bool) and -count <= item < count:
            wanted.add(item % count)
        else:
            raise VitlabError(f"no block {item!r}; the model has {count} token-mixing blocks, 0 to {count - 1}")
    return [blocks[i] for i in sorted(wanted)]


def _bound(text: str | None, count: int) -> int | None:
    """A bound of a range: a number of blocks, or a share of them, rounded half up."""
    if text is None:
        return None
    return int(int(text[:-1]) * count / 100 + 0.5) if text.endswith("%") else int(text)


# -- making and placing parts ---------------------------------------------------------------------------------------


def _fit(model: nn.Module, seam: Seam, name: str, make: Callable[..., nn.Module], settings: dict[str, Any]) -> Any:
    """A part for one seam: built, on the device and in the precision of its neighbours, in the model's mode."""
    host = model.get_submodule(seam.path)
    if seam.side == "replace" and (hasattr(host, "vitlab_original") or any(True for _ in _children(host))):
        raise VitlabError(
            f"{seam.path} already carries a part; restore the model first, then put {name} in before the others"
        )
    if seam.side != "replace" and isinstance(host, (nn.Sequential, nn.ModuleList)):
        raise AssertionError(f"an adapter put {seam.name} on the container {seam.path}, which would run the part twice")
    wants = _parameters(make)
    if wants is not None:
        unknown_settings = [key for key in settings if key not in wants or key in _GIVEN]
        if unknown_settings:
            raise unknown(f"setting of {name}", unknown_settings[0], [key for key in wants if key not in _GIVEN])
        if ("attention" in wants) != (seam.side == "replace"):
            raise VitlabError(
                f"{name} replaces the attention module: put it at 'attn', not at {seam.name!r}"
                if "attention" in wants
                else f"{name} cannot replace an attention module; put it at another seam than 'attn'"
            )
        if "layout" in wants and seam.layout.shuffled:
            raise VitlabError(
                f"{name} needs to know where tokens lie, and {type(model).__name__} shuffles its patches; "
                "use a part that does not ask for the layout"
            )
        given = {"dim": seam.dim, "layout": seam.layout, "attention": host}
        settings = {**settings, **{key: value for key, value in given.items() if key in wants}}
    try:
        part = make(**settings)
    except VitlabError:
        raise
    except Exception as error:  # whatever a part's constructor raises is about the settings that the user gave
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise VitlabError(f"{name} could not be built: {reason}") from error
    if not isinstance(part, nn.Module):
        raise VitlabError(f"{name} made {type(part).__name__}, not a torch.nn.Module")
    weight = next((p for p in (*host.parameters(), *model.parameters()) if p.is_floating_point()), None)
    if weight is not None and seam.side != "replace":
        part.to(weight.device, weight.dtype)
    return part.train(model.training)


def _parameters(make: Callable[..., nn.Module]) -> list[str] | None:
    """The names of a constructor's parameters, or None where it takes anything."""
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
        part.vitlab_original = (host,)  # in a tuple, so that it is kept without being registered
        parent, _, child = seam.path.rpartition(".")
        model.get_submodule(parent)._modules[child] = part
        return
    mark(part, "marker", None, weight.device)
    if seam.layout.permutation is not None and not seam.layout.shuffled:
        order, inverse = orders(seam.layout, weight.device)
        part.register_buffer("vitlab_order", order, persistent=False)
        part.register_buffer("vitlab_inverse", inverse, persistent=False)
    host.add_module(_free_name(host, _PREFIX + name), part)
    if seam.side == "in" and _before not in host._forward_pre_hooks.values():
        host.register_forward_pre_hook(_before)
    if seam.side == "out" and _after not in host._forward_hooks.values():
        # First, so that hooks which record outputs see the part's: transformers collects hidden states with such hooks.
        host.register_forward_hook(_after, prepend=True)


def _original(part: Any) -> nn.Module:
    original: nn.Module = part.vitlab_original[0]
    if hasattr(part, "give_back"):  # a part that holds copies of weights returns what became of them
        part.give_back(original)
    weight = next((p for p in part.parameters() if p.is_floating_point()), None)
    if weight is not None:
        original.to(weight.device, weight.dtype)
    return original.train(part.training)


def _children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return ((name, child) for name, child in module.named_children() if name.startswith(_PREFIX))


def _has_same(model: nn.Module, seam: Seam, part: nn.Module, settings: dict[str, Any] | None) -> bool:
    """Whether there is a part of the same class, settings and configuration at a seam."""
    here = [vars(child) | {"part": child} for _, child in _children(model.get_submodule(seam.path))]
    return any(
        type(child["part"]) is type(part)
        and (child.get("vitlab_seam"), child.get("vitlab_settings")) == (seam, settings)
        and configuration(child["part"]) == configuration(part)
        for child in here
    )


def _free_name(module: nn.Module, name: str) -> str:
    taken = dict(_children(module))
    if name not in taken:
        return name
    return next(f"{name}_{i}" for i in range(2, len(taken) + 3) if f"{name}_{i}" not in taken)
