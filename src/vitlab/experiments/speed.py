"""The procedure `speed`: images per second of a training step. Only ratios between models on one device mean something.

A step is a forward and backward pass of the cross entropy and an update of AdamW, on random images.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from vitlab.core.bounds import Range
from vitlab.core.measurement import Measurement

__all__ = ["speed"]


def speed(
    model: nn.Module,
    size: tuple[int, int],
    *,
    batch_size: Annotated[int, Range(1, 65_536)] = 32,
    steps: Annotated[int, Range(1, 100_000)] = 5,
    compiled: bool = False,
) -> Measurement:
    """Returns `images_per_second`: the batch size divided by the median time of a step, after two warm-up steps.

    Args:
        model: a classifier, trained in place.
        size: height and width of the images.
        batch_size: images per step.
        steps: number of measured steps.
        compiled: whether the model is compiled.
    """
    device = next(model.parameters()).device
    images = torch.randn(batch_size, 3, *size, device=device)
    forward: Callable[..., torch.Tensor] = torch.compile(model) if compiled else model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

    def step() -> float:
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        output = forward(images)
        logits = output[0] if isinstance(output, tuple) else output
        F.cross_entropy(logits, torch.zeros(batch_size, dtype=torch.long, device=device)).backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    times = [step() for _ in range(2 + steps)][2:]
    rate = np.array(batch_size / median(times))
    settings = {"batch_size": batch_size, "steps": steps, "compiled": compiled, "device": device.type}
    return Measurement(
        "speed", type(model).__name__, {"images_per_second": rate}, {"images_per_second": ()}, {}, settings
    )
