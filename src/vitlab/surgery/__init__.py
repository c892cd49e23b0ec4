"""Insert parts into an existing model in place (`retrofit`) and remove them (`restore`).

A part is registered as a child of the module at its seam, named `vitlab_<part>`, and one module-level hook calls it
by name. All state is on the model, so that parts are copied, saved and wrapped with it, and `restore` also works on a
deepcopy, an EMA copy or an unpickled model.

At the seam `attn` the part replaces the attention module under the same name, and stores the original, unregistered,
for `restore`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from torch import nn

from vitlab.adapters import describe
from vitlab.adapters.noise import noise_outputs, relative_change
from vitlab.adapters.wrappers import guard_hooks, unwrap
from vitlab.core.anatomy import SEAMS
from vitlab.core.errors import VitlabError, unknown
from vitlab.identity import trained_origin
from vitlab.markers import snake
from vitlab.modules.token_kinds import TokenKinds
from vitlab.surgery.building import Part, build_part, parse
from vitlab.surgery.hooks import PREFIX, run_after, run_before, update_kinds
from vitlab.surgery.insertion import has_same, insert, insert_kinds, restored_original, shared_kinds
from vitlab.surgery.selection import select_seams

__all__ = ["changes_reported", "restore", "retrofit"]

Model = TypeVar("Model", bound=nn.Module)

_TOLERANCE = 0.01  # relative change of the outputs that is not reported


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
    request = parse(part, at, blocks)
    name, settings, at = request.name, request.settings, request.at
    if at is None:
        raise VitlabError(f"{name} has no default seam; expected at=SEAM, one of: {', '.join(map(repr, SEAMS))}")
    if at not in SEAMS:
        raise unknown("seam", at, SEAMS)
    inner = unwrap(model)
    anatomy = describe(inner, input_size)
    places = select_seams(anatomy, at, "all" if request.blocks is None else request.blocks)
    # All parts are built before the first is inserted, so that an error leaves the model unchanged.
    kinds = shared_kinds(inner)
    fitted = [(block, seam, build_part(inner, seam, request, kinds)) for block, seam in places]
    duplicates = [block.name for block, seam, module in fitted if has_same(inner, seam, module, settings)]
    if duplicates:
        warnings.warn(f"{name} with the same settings is already at {at!r} of {', '.join(duplicates)}", stacklevel=2)
    with changes_reported(inner, trained_origin(inner), [name], input_size):
        for block, seam, module in fitted:
            module.vitlab_name, module.vitlab_block, module.vitlab_settings = name, block.name, settings
            insert(inner, seam, snake(name), module)
        if kinds is not None and any(getattr(module, "kinds", None) is kinds for _, _, module in fitted):
            insert_kinds(inner, kinds)
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
            stacklevel=4,
        )


def restore(model: Model) -> Model:
    """Remove every vitlab part from a model, in place: same outputs, state dict keys and module tree as before.

    Other hooks and children are unchanged. An attention module that a part replaced is restored with the current
    weights of the part (weights that the part does not have keep their values), on its device and in its precision.
    """
    for module in list(unwrap(model).modules()):
        for name, child in list(module._modules.items()):
            if child is not None and hasattr(child, "vitlab_original"):
                module._modules[name] = restored_original(child)
            elif name.startswith(PREFIX) and (hasattr(child, "vitlab_seam") or isinstance(child, TokenKinds)):
                del module._modules[name]
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, hook in hooks.items() if hook in (run_before, run_after, update_kinds)]:
                del hooks[key]
                module._forward_hooks_with_kwargs.pop(key, None)
    guard_hooks()
    return model
