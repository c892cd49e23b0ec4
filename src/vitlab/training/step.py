"""One optimisation step: forward, backward, clip, update; as it is, compiled, or captured in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Recipe
from vitlab.training.state import TrainingState

Batch = tuple[Tensor, ...]
Loss = Callable[[nn.Module, Batch], Tensor]
Step = Callable[[Batch], Tensor]


def make_step(recipe: Recipe, model: nn.Module, loss: Loss, state: TrainingState) -> Step:
    """A function that takes a batch, trains on it, and returns its loss.

    Args:
        recipe: precision, accumulation, clipping, SAM.
        model: what is run, perhaps wrapped for many processes.
        loss: the objective.
        state: what the step changes; its model is the one inside the wrapper.
    """
    inner, optimizer, ema, scaler = state.model, state.optimizer, state.ema, state.scaler
    device = next(inner.parameters()).device
    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[recipe.precision]
    parameters = [parameter for parameter in inner.parameters() if parameter.requires_grad]

    def forward(batch: Batch) -> Tensor:
        with torch.autocast(device.type, kind, enabled=kind != torch.float32):
            return loss(model, batch)

    if recipe.compile:
        forward = torch.compile(forward)

    def gradients(batch: Batch) -> Tensor:
        """Add up the gradients of a batch, piece by piece, and return its mean loss."""
        total = torch.zeros((), device=device)
        for last, piece in _pieces(batch, recipe.accumulate):
            alone = isinstance(model, DistributedDataParallel) and not last
            with model.no_sync() if alone else nullcontext():  # type: ignore[operator]
                value = forward(piece) / recipe.accumulate
                scaler.scale(value).backward()
            total += value.detach()
        return total

    def step(batch: Batch) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        value = gradients(batch)
        if recipe.optimizer.sam:
            before = _climb(parameters, recipe.optimizer.sam)
            optimizer.zero_grad(set_to_none=True)
            gradients(batch)
            _return(parameters, before)
        if recipe.optimizer.clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(parameters, recipe.optimizer.clip)
        scaler.step(optimizer)
        scaler.update()
        if ema is not None:
            ema.update(inner)
        return value

    return step


def capture(step: Step, batch: Batch, state: Callable[[], list[Tensor]]) -> Step:
    """Capture a step in a CUDA graph: one launch instead of a thousand.

    Warming up trains for a few steps, so everything that a step changes is put back before the capture.

    Args:
        step: the step; its shapes must not change.
        batch: an example.
        state: lists all tensors that a step changes (weights, moments, averages, statistics).
    """
    inputs = tuple(tensor.clone() for tensor in batch)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    step_once = list(state())
    kept = [tensor.clone() for tensor in step_once]
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(inputs)
        for tensor in state():
            tensor.zero_()  # moments that did not exist before start from zero
        for tensor, value in zip(step_once, kept, strict=True):
            tensor.copy_(value)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step(inputs)

    def replay(batch: Batch) -> Tensor:
        for place, tensor in zip(inputs, batch, strict=True):
            place.copy_(tensor, non_blocking=True)
        graph.replay()
        return output

    return replay


def _pieces(batch: Batch, count: int) -> Iterator[tuple[bool, Batch]]:
    """A batch cut into equal pieces, with whether it is the last one."""
    if len(batch[0]) % count:
        raise VitlabError(
            f"a batch of {len(batch[0])} images cannot be cut into accumulate={count} equal pieces; change one of them"
        )
    chunks = [tensor.chunk(count) for tensor in batch]
    for i in range(len(chunks[0])):
        yield i == len(chunks[0]) - 1, tuple(chunk[i] for chunk in chunks)


@torch.no_grad()
def _climb(parameters: list[Any], radius: float) -> list[Tensor]:
    """SAM's first half: go to the worst point within the radius; returns where the weights were."""
    moving = [parameter for parameter in parameters if parameter.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([parameter.grad.norm() for parameter in moving]))
    before = [parameter.clone() for parameter in parameters]
    for parameter in moving:
        parameter.add_(parameter.grad * (radius / (norm + 1e-12)))
    return before


@torch.no_grad()
def _return(parameters: list[Any], before: list[Tensor]) -> None:
    for parameter, value in zip(parameters, before, strict=True):
        parameter.copy_(value)
