"""`intervene`: ablate, replace or patch activations of a model inside a `with` block; state is restored on exit.

Shape legend: B batch, N tokens, D channels, d channels of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from vitlab.adapters import describe, inputs_of
from vitlab.adapters.wrappers import guard_hooks, unwrap
from vitlab.core.anatomy import Anatomy, Block, Seam
from vitlab.core.errors import VitlabError, unknown
from vitlab.eval_mode import eval_mode
from vitlab.interventions.arguments import Tokens, blocks_of, head_indices, index_of, token_indices
from vitlab.interventions.heads import changed_heads
from vitlab.interventions.hooks import hooked
from vitlab.interventions.places import SHORT, Change, changed, seam_of
from vitlab.interventions.units import removed, units
from vitlab.recording.tokens import first_of, to_tokens

__all__ = ["Activations", "activations", "intervene"]

Action = Literal["ablate", "replace", "patch"]
Value = Tensor | float | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Activations:
    """Activations of one forward.

    Args:
        values: tokens (B, N, D) by block and seam, for example `("blocks.3", "attn.out")`; outputs of the heads
            (B, H, N, d) by block and `"heads"`.
        output: what the model returned.
    """

    values: Mapping[tuple[str, str], Tensor]
    output: Any

    def at(self, block: str, place: str) -> Tensor:
        """Returns the activations of a block at a place."""
        if (block, place) not in self.values:
            known = sorted({f"{name} {where}" for name, where in self.values})
            raise VitlabError(f"no stored activations of {block} at {place!r}; stored: {', '.join(known)}")
        return self.values[block, place]


@contextmanager
def intervene(
    model: nn.Module,
    action: Action,
    *,
    block: str | int | Sequence[str | int] = "all",
    at: str = "block",
    head: int | Sequence[int] | None = None,
    tokens: int | Sequence[int] | Sequence[bool] | Tensor | slice | None = None,
    value: Value | None = None,
    source: Activations | Tensor | Mapping[str, Tensor] | None = None,
    input_size: int | tuple[int, int] | None = None,
    anatomy: Anatomy | None = None,
) -> Iterator[nn.Module]:
    """Change activations of a model inside a `with` block. Weights are not changed, and no hook remains on exit.

    Interventions compose: nest the `with` blocks, or enter several in one statement. They also change copies of the
    model that are made inside the block, until its end. Run the model in one thread at a time; for heads, in the thread
    that entered the block.

    Args:
        model: any model that `describe` supports; it may be compiled or wrapped in DDP.
        action: `"ablate"` removes the contribution: the output of a branch or head is 0, and a block passes its input
            through. `"replace"` sets `value`. `"patch"` sets the activations of another forward, from `source`.
        block: name or index of a block, several of them, or `"all"`.
        at: `"attn"` or `"mlp"`, the output of a branch; `"block"`, the residual stream after the block; or a seam,
            such as `"mlp.mid"`.
        head: index of one or more attention heads: their outputs before the projection are changed instead. Omit `at`.
        tokens: index of one or more tokens to change, a slice, or a mask of booleans (N,); prefix tokens first, then
            the grid in row-major order; default all.
        value: for `"replace"`: a number, a tensor that can be broadcast to the activations, or a function of them that
            returns such a tensor, or None to change nothing.
        source: for `"patch"`: the result of `activations`, or images (or inputs by name): the model is then run on
            them once, in evaluation mode.
        input_size: size of the images. Default: the model's input size.
        anatomy: result of `describe` for this model and size, if already computed; saves a forward.

    Yields:
        The model.

    >>> import timm
    >>> model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2).eval()
    >>> clean, noisy = torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)
    >>> with torch.no_grad(), intervene(model, "patch", block="blocks.1", source=clean):
    ...     patched = model(noisy)
    >>> with torch.no_grad():
    ...     torch.equal(patched, model(clean))
    True
    """
    _check(action, at, head, value, source)
    where = None if tokens is None else token_indices(tokens)
    heads = None if head is None else head_indices(head)
    inner = unwrap(model)
    anatomy = anatomy or describe(inner, input_size)
    blocks = blocks_of(anatomy, block)
    if action == "patch" and not isinstance(source, Activations):
        assert source is not None
        source = activations(inner, source, block=[each.name for each in blocks], at=at, heads=heads is not None)
    with ExitStack() as stack:
        if heads is not None:
            edits = {
                each.name: (each, _head_change(action, each, heads, where, value, source))  # type: ignore[arg-type]
                for each in blocks
            }
            stack.enter_context(changed_heads(inner, edits))
        elif action == "ablate" and at in SHORT:
            _ablate(inner, anatomy, blocks, at, where, stack)
        else:
            for each in blocks:
                seam = seam_of(anatomy, each, at)
                new = _new(action, value, source, each.name, seam.name)  # type: ignore[arg-type]
                stack.enter_context(changed(inner, seam, _at_tokens(new, where, each.name)))
        guard_hooks()
        yield model


def activations(
    model: nn.Module,
    images: Tensor | Mapping[str, Tensor],
    *,
    block: str | int | Sequence[str | int] = "all",
    at: str | Sequence[str] = "block",
    heads: bool = False,
    anatomy: Anatomy | None = None,
) -> Activations:
    """Run a model once, in evaluation mode and without gradients, and return activations, for
    `intervene(model, "patch", source=...)`.

    Args:
        model: any model that `describe` supports; its mode is restored.
        images: (B, C, h, w), or the inputs by name.
        block: name or index of a block, several of them, or `"all"`.
        at: one or more places, as in `intervene`.
        heads: whether to store the outputs of the attention heads instead.
        anatomy: result of `describe` for this model and size, if already computed; saves a forward.
    """
    inner = unwrap(model)
    pixels = images if isinstance(images, Tensor) else images["pixel_values"]
    if anatomy is None:
        anatomy = describe(inner, _image_size(pixels))
    values: dict[tuple[str, str], Tensor] = {}

    def store(name: str, place: str) -> Change:
        def read(x: Tensor) -> None:
            values[name, place] = x.detach().clone()

        return read

    blocks = blocks_of(anatomy, block)
    with ExitStack() as stack, eval_mode(inner):
        if heads:
            stack.enter_context(changed_heads(inner, {each.name: (each, store(each.name, "heads")) for each in blocks}))
        else:
            for each in blocks:
                for place in (at,) if isinstance(at, str) else at:
                    seam = seam_of(anatomy, each, place)
                    stack.enter_context(changed(inner, seam, store(each.name, seam.name)))
        guard_hooks()
        output = inner(images) if isinstance(images, Tensor) else inner(**images)
    return Activations(values, output)


def _image_size(pixels: Tensor) -> tuple[int, int]:
    if pixels.ndim != 4:
        raise VitlabError(
            f"the image size cannot be read from pixels of shape {tuple(pixels.shape)}; expected (B, C, h, w); "
            "give anatomy=, the result of describe"
        )
    return int(pixels.shape[-2]), int(pixels.shape[-1])


def _check(action: str, at: Any, head: Any, value: Any, source: Any) -> None:
    if action not in get_args(Action):
        raise unknown("action", action, get_args(Action))
    if not isinstance(at, str):
        raise VitlabError(f"invalid at={at!r}; expected 'attn', 'mlp', 'block' or a seam")
    if head is not None and at not in ("block", "attn"):  # the default, and the branch that has the heads
        raise VitlabError(f"invalid at={at!r} with head={head!r}; heads are those of the attention; omit at= or head=")
    if (value is None) == (action == "replace"):
        raise VitlabError(f"intervene({action!r}): value= is needed for 'replace' and for nothing else")
    if (source is None) == (action == "patch"):
        raise VitlabError(f"intervene({action!r}): source= is needed for 'patch' and for nothing else")
    if source is not None and not isinstance(source, Activations | Tensor | Mapping):
        raise VitlabError(
            f"invalid source= of type {type(source).__name__}; expected images or the result of activations"
        )


def _new(action: Action, value: Value | None, source: Activations | None, block: str, place: str) -> Change:
    """A function from activations to those that replace them."""
    if action == "ablate":
        return torch.zeros_like
    if action == "patch":
        assert source is not None
        stored = source.at(block, place)
        return lambda x: _like(stored, x, f"the stored tensor of {block} at {place!r}")
    if callable(value):
        return lambda x: _result(value(x), x, f"{block} at {place!r}")
    try:
        given = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise VitlabError(f"invalid value={value!r}; expected a number, a tensor or a function of tensors") from None
    return lambda x: _like(given, x, f"value= for {block} at {place!r}")


def _result(given: Any, x: Tensor, where: str) -> Tensor | None:
    """What a function of the activations returned, in their shape; None leaves them unchanged."""
    if given is None:
        return None
    if not isinstance(given, Tensor):
        raise VitlabError(f"the function value= returned {type(given).__name__} for {where}; expected a tensor")
    return _like(given, x, f"the result of the function value= for {where}")


def _like(given: Tensor, x: Tensor, what: str) -> Tensor:
    """A tensor in the shape, type and device of activations."""
    try:
        return given.to(x.device, x.dtype).expand_as(x)
    except RuntimeError:
        raise VitlabError(
            f"{what} has shape {tuple(given.shape)}; expected {tuple(x.shape)}, the shape of the activations"
        ) from None


def _at_tokens(new: Change, tokens: Tokens | None, block: str) -> Change:
    """Restrict a change to some tokens, on the axis before the last."""
    if tokens is None:
        return new

    def change(x: Tensor) -> Tensor:
        result, index = x.clone(), index_of(tokens, x.shape[-2], block)
        changed_tokens = new(x)
        if changed_tokens is not None:
            result[..., index, :] = changed_tokens[..., index, :]
        return result

    return change


def _head_change(
    action: Action,
    block: Block,
    heads: tuple[int, ...],
    tokens: Tokens | None,
    value: Value | None,
    source: Activations | None,
) -> Change:
    """A function of the outputs of all heads (B, H, N, d) that changes some of them."""
    layout = block.mixer.queries
    if tokens is not None and layout is not None and (layout.windows > 1 or layout.permutation is not None):
        raise VitlabError(f"tokens= cannot be combined with head= in {block.name}, whose attention is windowed")
    new = _at_tokens(_new(action, value, source, block.name, "heads"), tokens, block.name)

    def change(x: Tensor) -> Tensor:
        if any(not 0 <= head < x.shape[1] for head in heads):
            raise VitlabError(f"invalid head={list(heads)} for {block.name}; expected 0 to {x.shape[1] - 1}")
        result, index = x.clone(), list(heads)
        edited = new(x)
        if edited is not None:
            result[:, index] = edited[:, index]
        return result

    return change


def _ablate(
    model: nn.Module,
    anatomy: Anatomy,
    blocks: Sequence[Block],
    at: str,
    tokens: Tokens | None,
    stack: ExitStack,
) -> None:
    """Remove branches, or pass the input of blocks through."""
    if at == "block":
        for each in blocks:
            _skip(model, anatomy, each, tokens, stack)
        return
    kind = "MSA" if at == "attn" else "MLP"
    with eval_mode(model):  # in training mode the forwards would change batch statistics and the random state
        found = units(model, anatomy, inputs_of(model, anatomy.input_size))
    branches = {unit.block.name: unit for unit in found if unit.kind == kind}
    for each in blocks:
        if each.name not in branches:
            seam_of(anatomy, each, at)  # raises if there is none
            raise VitlabError(f"{each.name} has no skip path around its {kind}; it cannot be ablated")
        unit = branches[each.name]
        if tokens is None:
            stack.enter_context(removed(model, unit))
        else:
            seam = seam_of(anatomy, each, at)
            place = Seam(seam.name, unit.path, "out", seam.layout, seam.dim)
            stack.enter_context(changed(model, place, _at_tokens(torch.zeros_like, tokens, each.name)))


def _skip(model: nn.Module, anatomy: Anatomy, block: Block, tokens: Tokens | None, stack: ExitStack) -> None:
    """Replace the output of a block by its input."""
    start, end = block.tap("block.in"), seam_of(anatomy, block, "block")
    if start is None:
        raise VitlabError(f"the input of {block.name} cannot be read, so the block cannot be ablated; use at='attn'")
    inputs: list[Tensor] = []

    def read(module: nn.Module, *given: Any) -> None:
        inputs[:] = [to_tokens(first_of(given[-1]), start.layout)]

    def new(x: Tensor) -> Tensor:
        if not inputs or inputs[0].shape != x.shape:
            shape = tuple(inputs[0].shape) if inputs else "unknown"
            raise VitlabError(
                f"{block.name} changes the shape of its tokens from {shape} to {tuple(x.shape)} and cannot be ablated; "
                "use at='attn' or at='mlp'"
            )
        return inputs[0]

    side: Literal["in", "out"] = "in" if start.side == "in" else "out"
    stack.enter_context(hooked(model, start.path, read, side, prepend=side == "in"))
    stack.enter_context(changed(model, end, _at_tokens(new, tokens, block.name)))
