"""A forward hook that is registered inside a `with` block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from torch import nn

from vitlab.adapters.wrappers import guard_hooks

Hook = Callable[..., Any]


@contextmanager
def hooked(
    model: nn.Module,
    path: str,
    hook: Hook,
    side: Literal["in", "out"] = "out",
    prepend: bool = False,
    with_kwargs: bool = False,
) -> Iterator[None]:
    """Context manager: register a hook on a module; it is removed on exit.

    A copy of the model that is made inside the block has the hook too; on exit it has no effect there.

    Args:
        model: the model itself, without wrappers.
        path: the module.
        hook: a forward hook, or a forward pre-hook for side `in`; the value that it returns replaces output or input.
        side: before or after the module.
        prepend: whether the hook runs before those that are already registered.
        with_kwargs: whether the hook receives the keyword arguments of the module, as in `register_forward_hook`.
    """
    active = True

    def inside(*given: Any) -> Any:
        return hook(*given) if active else None

    module = model.get_submodule(path)
    guard_hooks()  # code that was compiled without the hook is not used with it
    register: Any = module.register_forward_pre_hook if side == "in" else module.register_forward_hook
    handle = register(inside, prepend=prepend, with_kwargs=with_kwargs)
    try:
        yield
    finally:
        active = False
        handle.remove()
