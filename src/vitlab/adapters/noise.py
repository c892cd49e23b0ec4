"""Outputs of a model on noise images, to compare two states of the model without data.

Noise rather than blank images: on a blank image all patches are equal, and a part that averages patches does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters import inputs_of
from vitlab.adapters.flow import preserve_state, run_on
from vitlab.adapters.wrappers import unwrap

__all__ = ["noise_outputs", "relative_change"]


def noise_outputs(model: nn.Module, input_size: int | tuple[int, int] | None = None) -> Tensor:
    """Returns all outputs of a model on two noise images, flattened, in evaluation mode; the model is unchanged.

    Args:
        model: any described model.
        input_size: height and width of the images. Default: the model's input size.
    """
    model = unwrap(model)
    generator = torch.Generator().manual_seed(0)
    inputs = {
        name: torch.randn(tensor.shape, generator=generator).to(tensor) if tensor.is_floating_point() else tensor
        for name, tensor in inputs_of(model, input_size).items()
    }
    with preserve_state(model):
        output = run_on(model, inputs)
    return torch.cat([tensor.double().flatten() for tensor in _tensors(output)])


def relative_change(before: Tensor, after: Tensor) -> float:
    """Returns ‖after − before‖ / ‖before‖; infinity if the number of outputs differs, as that of detections may.

    >>> relative_change(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 5.0]))
    0.2...
    """
    if before.shape != after.shape:
        return float("inf")
    return float((after - before).norm() / before.norm().clamp_min(torch.finfo(before.dtype).tiny))


def _tensors(output: Any) -> list[Tensor]:
    """The floating point tensors in an output of nested tuples and dicts."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, Mapping):
        output = tuple(output.values())
    return [tensor for value in output for tensor in _tensors(value)] if isinstance(output, (tuple, list)) else []
