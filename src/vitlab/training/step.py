"""One training step: forward, backward, clipping and update; eager, compiled, or captured in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Recipe
from vitlab.kernels.attention import ShortAttention
from vitlab.recording.tape import uses_gradient_checkpointing
from vitlab.training.state import TrainingState

Batch = tuple[Tensor, ...]
Loss = Callable[[nn.Module, Batch], Tensor]
Step = Callable[[Batch], Tensor]


def make_step(recipe: Recipe, model: nn.Module, loss: Loss, state: TrainingState) -> Step:
    """Returns a function that trains on a batch and returns its loss.

    A recorder of attention that acts on the step has to be entered before this call.

    Args:
        recipe: precision, accumulation, clipping, SAM.
        model: the model, possibly wrapped with DDP.
        loss: the loss function.
        state: the state that the step changes; its model is the one inside the wrapper.
    """
    inner, optimizer, ema, scaler = state.model, state.optimizer, state.ema, state.scaler
    device = next(inner.parameters()).device
    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[recipe.precision]
    parameters = [parameter for parameter in inner.parameters() if parameter.requires_grad]
    short_attention = _short_attention(recipe, inner, device)

    def forward(batch: Batch) -> Tensor:
        with torch.autocast(device.type, kind, enabled=kind != torch.float32), short_attention:
            return loss(model, batch)

    if recipe.compile:
        forward = torch.compile(forward)

    def gradients(batch: Batch) -> Tensor:
        """Accumulate the gradients of a batch and return its mean loss."""
        total = torch.zeros((), device=device)
        for last, chunk in _chunks(batch, recipe.accumulate):
            local = isinstance(model, DistributedDataParallel) and not last
            with model.no_sync() if local else nullcontext():  # type: ignore[operator]
                value = forward(chunk) / recipe.accumulate
                scaler.scale(value).backward()
            total += value.detach()
        return total

    def step(batch: Batch) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        value = gradients(batch)
        if recipe.optimizer.sam:
            original = _ascend(parameters, recipe.optimizer.sam)
            optimizer.zero_grad(set_to_none=True)
            gradients(batch)
            _restore(parameters, original)
        if recipe.optimizer.clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(parameters, recipe.optimizer.clip)
        scaler.step(optimizer)
        scaler.update()
        if ema is not None:
            ema.update(inner)
        return value

    return step


def _short_attention(recipe: Recipe, model: nn.Module, device: torch.device) -> AbstractContextManager[object]:
    """`ShortAttention` where it helps, and nothing depends on the model's own calls of attention.

    Another mode that is active now, such as a recorder of attention, has to see these calls, and the second forward of
    gradient checkpointing repeats them outside of this context.
    """
    helps = device.type == "cuda" and recipe.compile and recipe.precision != "float32"
    watched = torch._C._len_torch_function_stack() > 0 or uses_gradient_checkpointing(model)
    return ShortAttention() if helps and not watched else nullcontext()


def capture(step: Step, batch: Batch, state: Callable[[], list[Tensor]]) -> Step:
    """Capture a step in a CUDA graph, which replaces about a thousand kernel launches by one.

    The warm-up trains for a few steps, so the state is restored before the capture.

    Args:
        step: the step; its shapes must not change.
        batch: an example batch.
        state: returns all tensors that a step changes (weights, moments, averages, statistics).
    """
    inputs = tuple(tensor.clone() for tensor in batch)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    existing = list(state())
    saved = [tensor.clone() for tensor in existing]
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(inputs)
        for tensor in state():
            tensor.zero_()  # moments created by the warm-up start from zero
        for tensor, value in zip(existing, saved, strict=True):
            tensor.copy_(value)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step(inputs)

    def replay(batch: Batch) -> Tensor:
        for target, tensor in zip(inputs, batch, strict=True):
            target.copy_(tensor, non_blocking=True)
        graph.replay()
        return output

    return replay


def _chunks(batch: Batch, count: int) -> Iterator[tuple[bool, Batch]]:
    """Split a batch into equal chunks; yields whether a chunk is the last one, and the chunk."""
    if len(batch[0]) % count:
        raise VitlabError(
            f"a batch of {len(batch[0])} images cannot be divided equally into accumulate={count} steps; "
            "change one of them"
        )
    chunks = [tensor.chunk(count) for tensor in batch]
    for i in range(len(chunks[0])):
        yield i == len(chunks[0]) - 1, tuple(chunk[i] for chunk in chunks)


@torch.no_grad()
def _ascend(parameters: list[Any], radius: float) -> list[Tensor]:
    """The ascent step of SAM, w + ρ g / ‖g‖, in place; returns copies of the original weights."""
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([parameter.grad.norm() for parameter in trained]))
    original = [parameter.clone() for parameter in parameters]
    for parameter in trained:
        parameter.add_(parameter.grad * (radius / (norm + 1e-12)))
    return original


@torch.no_grad()
def _restore(parameters: list[Any], original: list[Tensor]) -> None:
    for parameter, value in zip(parameters, original, strict=True):
        parameter.copy_(value)
